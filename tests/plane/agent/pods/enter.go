// Package pods runs the pods of a node as processes of this machine: a network namespace with an address of its own for
// each pod, and for each container its files, environment, user, probes, hooks and time to end.
package pods

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a folder or file of the machine inside a container.
type mount struct {
	Source, Path string
	ReadOnly     bool
}

// entry is all that a process needs to become a container.
type entry struct {
	Root, Image, Hostname, Folder string
	Hosts, Resolve                string
	Mounts                        []mount
	Command, Environment          []string
	User, Group                   int // -1: as the agent
	Groups                        []int
	ReadOnlyRoot, NoNewPrivileges bool
	DropAll                       bool
}

func bind(from, to string, readOnly bool) error {
	about, err := os.Stat(from)
	if err != nil {
		return err
	}
	if about.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(to, os.O_CREATE, 0o644); err == nil {
			file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	if readOnly {
		return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// makeRoot lays a layer of its own over the image, as a container runtime does, and mounts what belongs there.
func makeRoot(e *entry) (string, error) {
	if err := unix.Mount("tmpfs", e.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return "", fmt.Errorf("tmpfs at %s: %w", e.Root, err)
	}
	root := filepath.Join(e.Root, "all")
	for _, name := range []string{"upper", "work", "all"} {
		if err := os.Mkdir(filepath.Join(e.Root, name), 0o755); err != nil {
			return "", err
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", e.Image, e.Root, e.Root)
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		return "", fmt.Errorf("overlay of %s: %w", e.Image, err)
	}
	for _, name := range []string{"dev", "sys"} {
		if err := bind("/"+name, filepath.Join(root, name), false); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return "", fmt.Errorf("proc: %w", err)
	}
	for name, text := range map[string]string{"hosts": e.Hosts, "resolv.conf": e.Resolve, "hostname": e.Hostname + "\n"} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	for _, m := range e.Mounts {
		if err := bind(m.Source, filepath.Join(root, m.Path), m.ReadOnly); err != nil {
			return "", err
		}
	}
	if e.ReadOnlyRoot {
		if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return "", fmt.Errorf("read-only root: %w", err)
		}
	}
	return root, nil
}

func dropRights(e *entry) error {
	if e.DropAll {
		for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // one that the kernel does not know is none
		}
	}
	if e.User >= 0 {
		if err := unix.Setgroups(e.Groups); err != nil {
			return fmt.Errorf("setgroups: %w", err)
		}
		if err := unix.Setresgid(e.Group, e.Group, e.Group); err != nil {
			return fmt.Errorf("setgid: %w", err)
		}
		if err := unix.Setresuid(e.User, e.User, e.User); err != nil {
			return fmt.Errorf("setuid: %w", err)
		}
	}
	// Another user is no longer killed with the agent, unless it asks for that again.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if e.NoNewPrivileges {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

// Enter makes this process the container that the file describes; file descriptor 3 is its network namespace. It
// returns only when that fails.
func Enter(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	if err := unix.Setns(3, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	unix.CloseOnExec(3)
	if err := unix.Sethostname([]byte(e.Hostname)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root, err := makeRoot(&e)
	if err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := unix.Chdir(e.Folder); err != nil {
		return fmt.Errorf("working directory %s: %w", e.Folder, err)
	}
	if err := dropRights(&e); err != nil {
		return err
	}
	program := e.Command[0]
	if !strings.Contains(program, "/") {
		for _, folder := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
			if _, err := os.Stat(filepath.Join(folder, program)); err == nil {
				program = filepath.Join(folder, program)
				break
			}
		}
	}
	return fmt.Errorf("%s: %w", program, unix.Exec(program, e.Command, e.Environment))
}

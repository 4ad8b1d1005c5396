package pods

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// NodeAddress is the node's own, and the gateway of its pods.
const NodeAddress = "10.244.0.1"

const bridge = "pods"

var allocated atomic.Uint32 // addresses and links given out; none is given twice

func ip(stdin string, namespace *os.File) error {
	command := exec.Command("ip", "-batch", "-")
	if namespace != nil {
		command = exec.Command("nsenter", "--net=/proc/self/fd/3", "ip", "-batch", "-")
		command.ExtraFiles = []*os.File{namespace}
	}
	command.Stdin = strings.NewReader(stdin)
	if told, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, told)
	}
	return nil
}

// MakeNodeNetwork lays the bridge that pods hang on. The agent must be in a network namespace that is not the machine's.
func MakeNodeNetwork() error {
	_ = exec.Command("ip", "link", "del", bridge).Run() // of an agent that was here before
	// With an address of its own: else it takes that of a port, and another one when a pod goes, which pods then learn late.
	return ip(fmt.Sprintf("link set lo up\nlink add %[1]s address 0a:58:0a:f4:00:01 type bridge\naddr add %[2]s/16 dev %[1]s\n"+
		"link set %[1]s up\n", bridge, NodeAddress), nil)
}

// AddAddress gives the node an address of a Service.
func AddAddress(address string) error { return ip("addr replace "+address+"/32 dev lo\n", nil) }

// network is a namespace with an address; it goes with its last process once the file is closed.
type network struct {
	namespace *os.File
	address   string
}

func newNetwork() (*network, error) {
	type made struct {
		file *os.File
		err  error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- made{nil, fmt.Errorf("network namespace: %w", err)}
			return
		}
		file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		result <- made{file, err}
	}()
	m := <-result
	if m.err != nil {
		return nil, m.err
	}
	number := allocated.Add(1) + 9
	n := &network{m.file, fmt.Sprintf("10.244.%d.%d", number/250, number%250+1)}
	link := exec.Command("sh", "-ec", fmt.Sprintf(
		"ip link add h%[1]d type veth peer name p%[1]d; ip link set h%[1]d master %[2]s up; ip link set p%[1]d netns /proc/self/fd/3",
		number, bridge))
	link.ExtraFiles = []*os.File{n.namespace}
	if told, err := link.CombinedOutput(); err != nil {
		n.close()
		return nil, fmt.Errorf("link of a pod: %w: %s", err, told)
	}
	err := ip(fmt.Sprintf("link set lo up\nlink set p%[1]d name eth0\naddr add %[2]s/16 dev eth0\nlink set eth0 up\n"+
		"route add default via %[3]s\n", number, n.address, NodeAddress), n.namespace)
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) close() { n.namespace.Close() }

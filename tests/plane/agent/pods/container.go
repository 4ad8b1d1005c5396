package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long a container that ends again and again waits for its next start, as the kubelet has it.
const (
	firstBackoff = 10 * time.Second
	longestBack  = 5 * time.Minute
	leastToEnd   = 2 * time.Second // after SIGTERM, however long the hook took
)

// Container is one of a pod's. Its goroutine is keep(); what others read is under the pod's lock.
type Container struct {
	pod     *Pod
	spec    *corev1.Container
	status  corev1.ContainerStatus
	process *os.Process
	exited  chan struct{} // closed when the running process has ended
	stop    chan struct{} // closed when it is to end for good
	ending  sync.Once
	done    chan struct{} // closed when keep() has returned
}

func newContainer(p *Pod, spec *corev1.Container) *Container {
	c := &Container{pod: p, spec: spec, stop: make(chan struct{}), done: make(chan struct{})}
	c.status = corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, ImageID: spec.Image, Started: new(bool)}
	c.status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	return c
}

// change alters the status and tells of it.
func (c *Container) change(alter func(*corev1.ContainerStatus)) {
	c.pod.mu.Lock()
	alter(&c.status)
	c.pod.mu.Unlock()
	c.pod.tell()
}

func (c *Container) waits(reason, message string) {
	c.change(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		s.Ready, s.Started = false, new(bool)
	})
}

// pause is false when the container is to end meanwhile.
func (c *Container) pause(d time.Duration) bool {
	select {
	case <-c.stop:
		return false
	case <-time.After(d):
		return true
	}
}

func (c *Container) security() *corev1.SecurityContext {
	if c.spec.SecurityContext != nil {
		return c.spec.SecurityContext
	}
	return &corev1.SecurityContext{}
}

// wanted are the user and groups that the manifest asks for.
func (c *Container) wanted() (user, group int, groups []int) {
	pod := c.pod.given.Spec.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	for _, of := range []*int64{pod.RunAsUser, c.security().RunAsUser} {
		if of != nil {
			user = int(*of)
		}
	}
	for _, of := range []*int64{pod.RunAsGroup, c.security().RunAsGroup} {
		if of != nil {
			group = int(*of)
		}
	}
	if pod.FSGroup != nil {
		groups = append(groups, int(*pod.FSGroup))
	}
	return user, group, groups
}

// ids are the user and groups that the container runs as, or -1 where the agent cannot choose.
func (c *Container) ids() (user, group int, groups []int) {
	if !canSwitchUser() {
		return -1, -1, nil
	}
	return c.wanted()
}

// refused says what the security context asks for and this node does not do.
func (c *Container) refused() error {
	security := c.security()
	user, _, _ := c.wanted()
	if pod := c.pod.given.Spec.SecurityContext; user == 0 && (truth(security.RunAsNonRoot) || pod != nil && truth(pod.RunAsNonRoot)) {
		return fmt.Errorf("runAsNonRoot, and the user is 0")
	}
	if rights := security.Capabilities; rights != nil {
		if len(rights.Add) > 0 {
			return fmt.Errorf("capabilities cannot be added here: %v", rights.Add)
		}
		for _, name := range rights.Drop {
			if name != "ALL" {
				return fmt.Errorf("capabilities are dropped all at once here (ALL), not %s alone", name)
			}
		}
	}
	return nil
}

func (c *Container) describe() (*entry, error) {
	if err := c.refused(); err != nil {
		return nil, err
	}
	image, err := c.pod.host.image(c.spec.Image)
	if err != nil {
		return nil, err
	}
	known, err := c.pod.environment(c.spec)
	if err != nil {
		return nil, err
	}
	user, group, groups := c.ids()
	security := c.security()
	e := &entry{Root: filepath.Join(c.pod.folder, c.spec.Name, "root"), Image: image, Hostname: c.pod.hostname(),
		Folder: "/", Hosts: c.pod.hosts(), Resolve: c.pod.resolve(), User: user, Group: group, Groups: groups,
		ReadOnlyRoot: truth(security.ReadOnlyRootFilesystem)}
	if c.spec.WorkingDir != "" {
		e.Folder = c.spec.WorkingDir
	}
	e.NoNewPrivileges = security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation
	e.DropAll = security.Capabilities != nil && len(security.Capabilities.Drop) > 0 // refused() knows no other than ALL
	for name, value := range known {
		e.Environment = append(e.Environment, name+"="+value)
	}
	for _, word := range append(append([]string{}, c.spec.Command...), c.spec.Args...) {
		e.Command = append(e.Command, expand(word, known))
	}
	if len(c.spec.Command) == 0 {
		return nil, fmt.Errorf("it names no command, and images have no entry points here")
	}
	for _, m := range c.spec.VolumeMounts {
		source, found := c.pod.volumes[m.Name]
		if !found {
			return nil, fmt.Errorf("no volume is called %s", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, known)
		}
		e.Mounts = append(e.Mounts, mount{filepath.Join(source, sub), m.MountPath, m.ReadOnly})
	}
	return e, os.MkdirAll(e.Root, 0o755)
}

// start gives the new process, which is the first of a process namespace: with it all that it started ends.
func (c *Container) start() (*exec.Cmd, error) {
	e, err := c.describe()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.pod.folder, c.spec.Name, "entry.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.pod.LogFile(c.spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command("/proc/self/exe", "enter", file)
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{c.pod.network.namespace}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Setsid:     true, Pdeathsig: syscall.SIGKILL}
	return command, startOnLastingThread(command)
}

var starts = func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
}()

// startOnLastingThread makes the process die with the agent: it dies with the thread that started it.
func startOnLastingThread(command *exec.Cmd) error {
	result := make(chan error)
	starts <- func() { result <- command.Start() }
	return <-result
}

// endFollowers kills the processes of a group but for its leader; a leader without any is killed itself.
func endFollowers(leader int) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	ended := false
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil || number == leader {
			continue
		}
		if group, err := syscall.Getpgid(number); err == nil && group == leader {
			ended = syscall.Kill(number, syscall.SIGKILL) == nil || ended
		}
	}
	if ended {
		return nil
	}
	return syscall.Kill(leader, syscall.SIGKILL)
}

// exec runs a command inside the running container.
func (c *Container) exec(ctx context.Context, words []string) error {
	c.pod.mu.Lock()
	process := c.process
	c.pod.mu.Unlock()
	if process == nil {
		return fmt.Errorf("not running")
	}
	args := []string{"-t", strconv.Itoa(process.Pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w"}
	if user, group, _ := c.ids(); user >= 0 {
		args = append(args, "-S", strconv.Itoa(user), "-G", strconv.Itoa(group))
	}
	command := exec.CommandContext(ctx, "nsenter", append(append(args, "--"), words...)...)
	// What nsenter runs is ended with all of its group, and what left the group is not waited for. nsenter itself then ends: it
	// takes its child's end in, without which the container's own would never be complete.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return endFollowers(command.Process.Pid) }
	command.WaitDelay = time.Second
	told, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("%v: its time is over: %w", words, ctx.Err())
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // it ended well, and what it left behind writes on
		return fmt.Errorf("%v: %w: %s", words, err, told)
	}
	return nil
}

func exitOf(command *exec.Cmd) *corev1.ContainerStateTerminated {
	state := &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), ExitCode: int32(command.ProcessState.ExitCode()),
		Reason: "Completed"}
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		state.ExitCode, state.Signal = 128+int32(status.Signal()), int32(status.Signal())
	}
	if state.ExitCode != 0 {
		state.Reason = "Error"
	}
	return state
}

// once runs the container from its start to its end; nil when it could not be started.
func (c *Container) once() *corev1.ContainerStateTerminated {
	command, err := c.start()
	if err != nil {
		c.waits("CreateContainerError", err.Error())
		return nil
	}
	begun := metav1.Now()
	exited := make(chan struct{})
	started := c.spec.StartupProbe == nil
	ctx, cancel := context.WithCancel(context.Background())
	c.change(func(s *corev1.ContainerStatus) {
		c.process, c.exited = command.Process, exited
		s.ContainerID = fmt.Sprintf("process://%d", command.Process.Pid)
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}}
		s.Started, s.Ready = &started, started && c.spec.ReadinessProbe == nil
	})
	go c.probe(ctx, exited)
	_ = command.Wait() // what it says is in the state
	cancel()
	state := exitOf(command)
	state.StartedAt, state.ContainerID = begun, fmt.Sprintf("process://%d", command.Process.Pid)
	c.pod.mu.Lock()
	c.process = nil
	c.pod.mu.Unlock()
	close(exited)
	return state
}

// probe runs the container's probes: startup first, then liveness and readiness beside each other.
func (c *Container) probe(ctx context.Context, exited chan struct{}) {
	if hook := c.spec.Lifecycle; hook != nil && hook.PostStart != nil {
		if err := c.hook(ctx, hook.PostStart); err != nil {
			c.pod.note("%s: postStart: %v", c.spec.Name, err)
			c.end(c.pod.grace(), exited)
			return
		}
	}
	if c.spec.StartupProbe != nil {
		good := false
		c.watch(ctx, c.spec.StartupProbe, func(is bool, why error) bool {
			if good = is; !is {
				c.pod.note("%s: startup probe failed: %v", c.spec.Name, why)
				go c.end(c.pod.grace(), exited)
			}
			return true
		})
		if !good {
			return
		}
		c.change(func(s *corev1.ContainerStatus) {
			is := true
			s.Started, s.Ready = &is, c.spec.ReadinessProbe == nil
		})
	}
	if c.spec.LivenessProbe != nil {
		go c.watch(ctx, c.spec.LivenessProbe, func(is bool, why error) bool {
			select {
			case <-c.stop: // a pod that ends is not asked whether it lives
				return true
			default:
			}
			if !is {
				c.pod.note("%s: liveness probe failed: %v", c.spec.Name, why)
				go c.end(c.pod.grace(), exited)
			}
			return !is
		})
	}
	if c.spec.ReadinessProbe != nil {
		c.watch(ctx, c.spec.ReadinessProbe, func(is bool, why error) bool {
			c.pod.mu.Lock()
			was := c.status.Ready
			c.pod.mu.Unlock()
			if was != is {
				if !is {
					c.pod.note("%s: not ready: %v", c.spec.Name, why)
				}
				c.change(func(s *corev1.ContainerStatus) { s.Ready = is })
			}
			return false
		})
	}
}

// end runs the hook, then sends SIGTERM, then SIGKILL when the grace is over.
func (c *Container) end(grace time.Duration, exited chan struct{}) {
	select {
	case <-exited:
		return
	default:
	}
	over := time.Now().Add(grace)
	if hook := c.spec.Lifecycle; hook != nil && hook.PreStop != nil && grace > 0 {
		ctx, cancel := context.WithDeadline(context.Background(), over)
		go func() {
			select {
			case <-exited:
				cancel()
			case <-ctx.Done():
			}
		}()
		if err := c.hook(ctx, hook.PreStop); err != nil {
			c.pod.note("%s: preStop: %v", c.spec.Name, err)
		}
		cancel()
	}
	select {
	case <-exited: // the hook ended it, and what runs now is another one
		return
	default:
	}
	c.signal(syscall.SIGTERM)
	left := time.Until(over)
	if grace > 0 && left < leastToEnd {
		left = leastToEnd
	}
	select {
	case <-exited:
	case <-time.After(left):
		c.pod.note("%s: SIGKILL, its grace of %v is over", c.spec.Name, grace)
		c.signal(syscall.SIGKILL)
		<-exited
	}
}

// hook runs what belongs to a container's start or end.
func (c *Container) hook(ctx context.Context, h *corev1.LifecycleHandler) error {
	if h.Sleep == nil {
		return c.handle(ctx, h.Exec, h.HTTPGet, h.TCPSocket, nil)
	}
	select {
	case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Container) signal(number syscall.Signal) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.process != nil {
		_ = c.process.Signal(number) // one that has ended needs none
	}
}

// halt ends the container for good; it returns when it has ended.
func (c *Container) halt(grace time.Duration) {
	c.ending.Do(func() { close(c.stop) })
	for {
		c.pod.mu.Lock()
		exited, running := c.exited, c.process != nil
		c.pod.mu.Unlock()
		if running {
			c.end(grace, exited)
		}
		select {
		case <-c.done:
			return
		case <-time.After(20 * time.Millisecond): // it was just being started
		}
	}
}

func (c *Container) again(code int32) bool {
	select {
	case <-c.stop:
		return false
	default:
	}
	policy := c.pod.given.Spec.RestartPolicy
	return policy == corev1.RestartPolicyAlways || policy == "" || policy == corev1.RestartPolicyOnFailure && code != 0
}

// keep runs the container again as its pod's policy says, until it is halted.
func (c *Container) keep() {
	defer close(c.done)
	backoff := time.Duration(0)
	for {
		select {
		case <-c.stop:
			c.finish(&corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137, FinishedAt: metav1.Now()})
			return
		default:
		}
		begun := time.Now()
		state := c.once()
		if state == nil { // not to be had; it is tried again
			if !c.pause(time.Second) {
				c.finish(&corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137, FinishedAt: metav1.Now()})
				return
			}
			continue
		}
		c.pod.note("%s: ended with %d", c.spec.Name, state.ExitCode)
		c.finish(state)
		if !c.again(state.ExitCode) {
			return
		}
		if time.Since(begun) > longestBack {
			backoff = 0
		}
		if !c.rest(&backoff, state) {
			return
		}
	}
}

// rest waits as long as the kubelet would before the next start, and counts it; false when there will be none.
func (c *Container) rest(backoff *time.Duration, state *corev1.ContainerStateTerminated) bool {
	if *backoff > 0 {
		c.change(func(s *corev1.ContainerStatus) {
			s.LastTerminationState = corev1.ContainerState{Terminated: state}
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %v", *backoff)}}
		})
		if !c.pause(*backoff) {
			c.finish(state)
			return false
		}
	}
	*backoff = min(max(2**backoff, firstBackoff), longestBack)
	c.change(func(s *corev1.ContainerStatus) {
		s.RestartCount++
		s.LastTerminationState = corev1.ContainerState{Terminated: state}
	})
	return true
}

// succeed runs an init container until it has ended well; false when it never will.
func (c *Container) succeed() bool {
	if c.spec.RestartPolicy != nil {
		c.waits("CreateContainerError", "init containers with a restart policy of their own are not known here")
		<-c.stop
		return false
	}
	backoff := time.Duration(0)
	for !c.pod.stopped() {
		state := c.once()
		if state == nil { // not to be had; it is tried again
			c.pause(time.Second)
			continue
		}
		c.finish(state)
		if state.ExitCode == 0 {
			c.change(func(s *corev1.ContainerStatus) { s.Ready = true })
			return true
		}
		c.pod.note("%s: ended with %d", c.spec.Name, state.ExitCode)
		if c.pod.given.Spec.RestartPolicy == corev1.RestartPolicyNever || !c.rest(&backoff, state) {
			return false
		}
	}
	return false
}

func (c *Container) finish(state *corev1.ContainerStateTerminated) {
	c.change(func(s *corev1.ContainerStatus) {
		s.State, s.Ready, s.Started = corev1.ContainerState{Terminated: state}, false, new(bool)
	})
}

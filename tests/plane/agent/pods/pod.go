package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const clusterDomain = "cluster.local"

// Pod is a pod that runs, from Start() until Stop() has returned.
type Pod struct {
	host    *Host
	given   *corev1.Pod
	folder  string
	changed func(*corev1.Pod)
	volumes map[string]string

	stop   chan struct{}
	ending sync.Once
	made   chan struct{} // closed when run() has returned: no more containers will be started

	mu         sync.Mutex
	network    *network
	begun      metav1.Time
	init, main []*Container
	ready      *metav1.Time // since when, both kinds of ready
	isReady    bool
	initDone   bool
	ended      bool
	why        string // what the pod waits for before its containers can be made
}

// Start runs the pod; `changed` is told of every status, never two at once.
func Start(h *Host, given *corev1.Pod, changed func(*corev1.Pod)) *Pod {
	p := &Pod{host: h, given: given.DeepCopy(), changed: changed, begun: metav1.Now(), volumes: map[string]string{},
		stop: make(chan struct{}), made: make(chan struct{})}
	p.folder = filepath.Join(h.Folder, "pods", given.Namespace+"_"+given.Name+"_"+string(given.UID))
	for i := range p.given.Spec.InitContainers {
		p.init = append(p.init, newContainer(p, &p.given.Spec.InitContainers[i]))
	}
	for i := range p.given.Spec.Containers {
		p.main = append(p.main, newContainer(p, &p.given.Spec.Containers[i]))
	}
	go p.run()
	return p
}

// note writes a line that tells what happened to the pod.
func (p *Pod) note(format string, args ...any) {
	fmt.Printf("%s %s/%s: %s\n", time.Now().Format("15:04:05.000"), p.given.Namespace, p.given.Name, fmt.Sprintf(format, args...))
}

// LogFile is where a container's output goes, over all its starts.
func (p *Pod) LogFile(container string) string {
	return filepath.Join(p.host.Folder, "logs", p.given.Namespace+"_"+p.given.Name+"_"+container+".log")
}

func (p *Pod) grace() time.Duration {
	if s := p.given.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}

func (p *Pod) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.network == nil {
		return ""
	}
	return p.network.address
}

func (p *Pod) hostname() string {
	if p.given.Spec.Hostname != "" {
		return p.given.Spec.Hostname
	}
	return p.given.Name
}

func (p *Pod) hosts() string {
	name := p.hostname()
	if sub := p.given.Spec.Subdomain; sub != "" {
		name = fmt.Sprintf("%s.%s.%s.svc.%s\t%s", p.hostname(), sub, p.given.Namespace, clusterDomain, p.hostname())
	}
	text := fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost\n%s\t%s\n", p.address(), name)
	for _, alias := range p.given.Spec.HostAliases {
		text += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	return text
}

func (p *Pod) resolve() string {
	return fmt.Sprintf("search %[1]s.svc.%[2]s svc.%[2]s %[2]s\nnameserver %[3]s\noptions ndots:5\n",
		p.given.Namespace, clusterDomain, p.host.Nameserver)
}

// prepare makes folders, network and volumes; it is tried again until it succeeds or the pod is to end.
func (p *Pod) prepare() error {
	for _, folder := range []string{p.folder, filepath.Join(p.host.Folder, "logs")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for _, c := range append(append([]*Container{}, p.init...), p.main...) {
		if err := os.MkdirAll(filepath.Join(p.folder, c.spec.Name), 0o755); err != nil {
			return err
		}
	}
	if p.address() == "" {
		made, err := newNetwork()
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.network = made
		p.mu.Unlock()
	}
	for i := range p.given.Spec.Volumes {
		path, err := p.makeVolume(&p.given.Spec.Volumes[i])
		if err != nil {
			return err
		}
		p.volumes[p.given.Spec.Volumes[i].Name] = path
	}
	return nil
}

func (p *Pod) stopped() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func (p *Pod) run() {
	defer close(p.made)
	for {
		err := p.prepare()
		if err == nil {
			break
		}
		p.note("waits: %v", err)
		p.mu.Lock()
		p.why = err.Error()
		p.mu.Unlock()
		p.tell()
		select {
		case <-p.stop:
			return
		case <-time.After(time.Second):
		}
	}
	for _, c := range p.init {
		if !c.succeed() {
			p.tell()
			return
		}
	}
	if p.stopped() {
		return
	}
	p.mu.Lock()
	p.initDone = true
	p.mu.Unlock()
	for _, c := range p.main {
		go c.keep()
	}
	p.note("started at %s", p.address())
}

// Stop ends the pod within the grace; it returns when all its processes are gone, and tells that status last.
func (p *Pod) Stop(grace time.Duration) {
	p.ending.Do(func() { close(p.stop) })
	p.endInit(grace)
	var all sync.WaitGroup
	p.mu.Lock()
	begun := p.initDone
	p.mu.Unlock()
	for _, c := range p.main {
		if !begun {
			break
		}
		all.Add(1)
		go func() {
			defer all.Done()
			c.halt(grace)
		}()
	}
	all.Wait()
	p.mu.Lock()
	p.ended = true
	if p.network != nil {
		p.network.close()
	}
	p.mu.Unlock()
	p.note("gone")
	p.tell()
	if err := os.RemoveAll(p.folder); err != nil {
		p.note("its folder stays: %v", err)
	}
}

// endInit ends the init container that runs, also one that was just being started; then no more will be.
func (p *Pod) endInit(grace time.Duration) {
	for {
		for _, c := range p.init {
			c.ending.Do(func() { close(c.stop) })
			p.mu.Lock()
			running, exited := c.process != nil, c.exited
			p.mu.Unlock()
			if running {
				c.end(grace, exited)
			}
		}
		select {
		case <-p.made:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Terminating marks the pod as one that was told to end.
func (p *Pod) Terminating() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := metav1.Now()
	p.given.DeletionTimestamp = &now
}

// Kill ends the container's processes at once, as a crash does; the pod stays.
func (p *Pod) Kill(container string, number int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.main {
		if (c.spec.Name == container || container == "") && c.process != nil {
			return c.process.Signal(syscall.Signal(number))
		}
	}
	return fmt.Errorf("no container %s runs", container)
}

func (p *Pod) tell() {
	p.changed(p.Object())
}

func condition(kind corev1.PodConditionType, is bool, since metav1.Time) corev1.PodCondition {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: since}
}

// phase of the pod; under the lock.
func (p *Pod) phase() corev1.PodPhase {
	over, failed, started := p.ended, false, false
	waits := !p.ended
	for _, c := range p.main {
		if t := c.status.State.Terminated; t != nil {
			failed = failed || t.ExitCode != 0
			started = true
			waits = waits && !c.mayStartAgain(t.ExitCode)
		} else {
			waits = false
			started = started || c.status.State.Running != nil || c.status.RestartCount > 0
		}
	}
	for _, c := range p.init {
		if t := c.status.State.Terminated; t != nil && t.ExitCode != 0 && p.given.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
	}
	switch {
	case (over || waits) && (failed || !started):
		return corev1.PodFailed
	case over || waits:
		return corev1.PodSucceeded
	case started:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

func (c *Container) mayStartAgain(code int32) bool {
	policy := c.pod.given.Spec.RestartPolicy
	return policy == corev1.RestartPolicyAlways || policy == "" || policy == corev1.RestartPolicyOnFailure && code != 0
}

// Object is the pod with its status of now.
func (p *Pod) Object() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.given.DeepCopy()
	s := &pod.Status
	s.StartTime, s.HostIP, s.QOSClass = &p.begun, NodeAddress, given(pod.Status.QOSClass)
	s.HostIPs = []corev1.HostIP{{IP: NodeAddress}}
	if p.network != nil {
		s.PodIP, s.PodIPs = p.network.address, []corev1.PodIP{{IP: p.network.address}}
	}
	s.Message = p.why
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for _, c := range p.init {
		s.InitContainerStatuses = append(s.InitContainerStatuses, *c.status.DeepCopy())
	}
	ready := !p.ended
	for _, c := range p.main {
		status := *c.status.DeepCopy()
		if p.ended && status.State.Terminated == nil {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}}
			status.Ready = false
		}
		ready = ready && status.Ready
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	if p.ready == nil || ready != p.isReady {
		now := metav1.Now()
		p.ready, p.isReady = &now, ready
	}
	s.Phase = p.phase()
	s.Conditions = []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, p.network != nil && !p.ended, p.begun),
		condition(corev1.PodInitialized, p.initDone, p.begun),
		condition(corev1.PodReady, ready, *p.ready),
		condition(corev1.ContainersReady, ready, *p.ready),
		condition(corev1.PodScheduled, true, p.begun),
	}
	return pod
}

func given(class corev1.PodQOSClass) corev1.PodQOSClass {
	if class == "" {
		return corev1.PodQOSBurstable
	}
	return class
}

// Processes are the first processes of the containers that run.
func (p *Pod) Processes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]int{}
	for _, c := range p.main {
		if c.process != nil {
			found[c.spec.Name] = c.process.Pid
		}
	}
	return found
}

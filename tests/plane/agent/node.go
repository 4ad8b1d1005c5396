package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	kubelet "github.com/virtual-kubelet/virtual-kubelet/node"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"quire/tests/plane/agent/pods"
)

const (
	podWorkers   = 8
	leaseSeconds = 40
	queueLimit   = 5 * time.Second
	queuePoll    = 20 * time.Millisecond
)

// fromCluster is where pods of a cluster get their files and variables.
type fromCluster struct{ client kubernetes.Interface }

func (f fromCluster) Secret(namespace, name string) (map[string][]byte, error) {
	secret, err := f.client.CoreV1().Secrets(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

func (f fromCluster) ConfigMap(namespace, name string) (map[string][]byte, error) {
	config, err := f.client.CoreV1().ConfigMaps(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for key, value := range config.BinaryData {
		data[key] = value
	}
	for key, value := range config.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

func (f fromCluster) Token(pod *corev1.Pod, audience string, seconds int64) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	account := pod.Spec.ServiceAccountName
	made, err := f.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(context.Background(), account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// provider runs the pods of one node for virtual-kubelet's controller.
type provider struct {
	*node
	client kubernetes.Interface
	mu     sync.Mutex
	notify func(*corev1.Pod)
	dirty  map[string]bool // pods whose status has changed since it was told
	wake   chan struct{}
	asked  map[string]*corev1.Pod // as the controller gave them
	ending map[string]bool        // pods whose status is told without the controller, see end()
	queued func() int             // statuses that the controller has still to tell
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (p *provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	// The informer's pods come without their variables, see joinNode.
	whole, err := p.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if whole.UID != pod.UID {
		return fmt.Errorf("it was replaced meanwhile")
	}
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	p.mu.Lock()
	p.asked[key(pod)] = pod.DeepCopy()
	p.mu.Unlock()
	p.running[key(pod)] = pods.Start(p.host, whole, func(*corev1.Pod) { p.changed(key(pod)) })
	return nil
}

// UpdatePod is for fields that may change in life; none of them concerns a process.
func (p *provider) UpdatePod(context.Context, *corev1.Pod) error { return nil }

// DeletePod begins the end of a pod and does not wait for it.
func (p *provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	running := p.pod(key(pod))
	if running == nil {
		return errdefs.NotFound("no such pod")
	}
	grace := time.Duration(0) // it is gone from the cluster already
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	p.mu.Lock()
	p.ending[key(pod)] = true
	p.mu.Unlock()
	go p.end(running, pod, grace)
	return nil
}

// end stops a pod and takes it away, as the kubelet does: the library would wait until the grace is over. It must have
// no status of the pod in its queue by then: it takes one that comes late for that of the next pod of the name, has none
// of that, and dies.
func (p *provider) end(running *pods.Pod, pod *corev1.Pod, grace time.Duration) {
	running.Stop(grace)
	p.node.mu.Lock()
	if p.running[key(pod)] != running {
		p.node.mu.Unlock()
		return
	}
	delete(p.running, key(pod))
	p.node.mu.Unlock()
	p.mu.Lock()
	delete(p.asked, key(pod))
	delete(p.ending, key(pod))
	p.mu.Unlock()
	p.say(running.Object())
	for end := time.Now().Add(queueLimit); p.queued() > 0 && time.Now().Before(end); {
		time.Sleep(queuePoll)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	options := *metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	if err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options); err != nil && !errors.IsNotFound(err) {
		fmt.Println(key(pod), "taking away:", err)
	}
}

// say tells the API server of a status.
func (p *provider) say(pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pod.ResourceVersion = ""
	if _, err := p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil && !errors.IsNotFound(err) {
		fmt.Println(key(pod), "status:", err)
	}
}

func (p *provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	running := p.pod(namespace + "/" + name)
	p.mu.Lock()
	asked := p.asked[namespace+"/"+name]
	p.mu.Unlock()
	if running == nil || asked == nil {
		return nil, errdefs.NotFound("no such pod")
	}
	pod := asked.DeepCopy()
	pod.Status = running.Object().Status
	return pod, nil
}

func (p *provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p *provider) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	p.mu.Lock()
	var names []*corev1.Pod
	for _, pod := range p.asked {
		names = append(names, pod)
	}
	p.mu.Unlock()
	var found []*corev1.Pod
	for _, asked := range names {
		if pod, err := p.GetPod(ctx, asked.Namespace, asked.Name); err == nil {
			found = append(found, pod)
		}
	}
	return found, nil
}

func (p *provider) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.notify = notify
	go p.tell(ctx)
}

func (p *provider) changed(name string) {
	p.mu.Lock()
	p.dirty[name] = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

// tell gives the controller the status of now: an older one never comes after a newer one.
func (p *provider) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		p.mu.Lock()
		names := p.dirty
		p.dirty = map[string]bool{}
		p.mu.Unlock()
		for name := range names {
			p.mu.Lock()
			ending := p.ending[name]
			p.mu.Unlock()
			if running := p.pod(name); ending && running != nil {
				p.say(running.Object())
				continue
			}
			namespace, pod, _ := cache.SplitMetaNamespaceKey(name)
			if object, err := p.GetPod(ctx, namespace, pod); err == nil {
				p.notify(object)
			}
		}
	}
}

func describe(name string) *corev1.Node {
	now := metav1.Now()
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	of := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name,
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "zone-" + name}},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts, Phase: corev1.NodeRunning,
			Conditions: []corev1.NodeCondition{of(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				of(corev1.NodeMemoryPressure, corev1.ConditionFalse, "Enough"), of(corev1.NodeDiskPressure, corev1.ConditionFalse, "Enough"),
				of(corev1.NodePIDPressure, corev1.ConditionFalse, "Enough")},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: pods.NodeAddress}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", OperatingSystem: "linux", Architecture: "amd64"}},
	}
}

// withoutVariables is what the library sees of a pod: it would put values in place of them by itself, but knows
// neither a pod's address nor amounts of resources.
func withoutVariables(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod = pod.DeepCopy()
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Env, list[i].EnvFrom = nil, nil
		}
	}
	return pod, nil
}

func joinNode(ctx context.Context, n *node, client kubernetes.Interface, shared informers.SharedInformerFactory, name string) error {
	mine := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", name).String()
	}))
	informer := mine.Core().V1().Pods()
	if err := informer.Informer().SetTransform(withoutVariables); err != nil {
		return err
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	p := &provider{node: n, client: client, dirty: map[string]bool{}, wake: make(chan struct{}, 1), asked: map[string]*corev1.Pod{},
		ending: map[string]bool{}}
	controller, err := kubelet.NewPodController(kubelet.PodControllerConfig{
		PodClient: client.CoreV1(), PodInformer: informer, Provider: p,
		EventRecorder:     events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "agent", Host: name}),
		ConfigMapInformer: shared.Core().V1().ConfigMaps(), SecretInformer: shared.Core().V1().Secrets(),
		ServiceInformer: shared.Core().V1().Services(),
	})
	if err != nil {
		return err
	}
	p.queued = controller.SyncPodStatusFromProviderQueueLen
	about, err := kubelet.NewNodeController(kubelet.NaiveNodeProvider{}, describe(name), client.CoreV1().Nodes(),
		kubelet.WithNodeEnableLeaseV1(client.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds))
	if err != nil {
		return err
	}
	mine.Start(ctx.Done())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	go report(ctx, name+": pods", func() error { return controller.Run(ctx, podWorkers) })
	select {
	case <-controller.Ready():
	case <-controller.Done():
		return controller.Err()
	}
	go report(ctx, name, func() error { return about.Run(ctx) })
	<-about.Ready()
	fmt.Println("joined as", name)
	return nil
}

func report(ctx context.Context, what string, run func() error) {
	if err := run(); err != nil && ctx.Err() == nil {
		fmt.Println(what, "ended:", err)
	}
}

// followServices keeps proxies and DNS in step with the cluster.
func followServices(ctx context.Context, n *node, shared informers.SharedInformerFactory) error {
	all, slices := shared.Core().V1().Services(), shared.Discovery().V1().EndpointSlices()
	wake := make(chan struct{}, 1)
	note := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	for _, informer := range []cache.SharedIndexInformer{all.Informer(), slices.Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { note() },
			UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() }}); err != nil {
			return err
		}
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			}
			services, err := all.Lister().List(labels.Everything())
			var endpoints []*discoveryv1.EndpointSlice
			if err == nil {
				endpoints, err = slices.Lister().List(labels.Everything())
			}
			if err != nil { // a lister reads what is in memory
				panic(err)
			}
			n.directory.Set(services, endpoints)
			n.proxies.Follow(services)
		}
	}()
	return nil
}

// joinCluster joins as nodes of these names, once the API server answers, and stays until the context ends.
func joinCluster(ctx context.Context, n *node, kubeconfig string, names []string, control string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n.host.Sources = fromCluster{client}
	if err := n.control(http.NewServeMux(), control); err != nil {
		return err
	}
	for client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	if err := followServices(ctx, n, shared); err != nil {
		return err
	}
	for _, name := range names {
		if err := joinNode(ctx, n, client, shared, name); err != nil {
			return err
		}
	}
	<-ctx.Done()
	n.stopAll()
	return nil
}

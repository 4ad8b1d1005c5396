package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"

	"quire/tests/plane/agent/pods"
)

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/"

// local runs the pods of a file of manifests without a control plane: it makes as many as the objects say, lists their
// endpoints for proxies, DNS and whoever asks its API server, and replaces none that is taken away.
type local struct {
	*node
	objects  []object
	services []*corev1.Service
	ca       []byte
	one      sync.Mutex // refresh() runs once at a time
	mu       sync.Mutex
	changed  *sync.Cond
	version  int
	slices   map[string]*discoveryv1.EndpointSlice
}

type object struct {
	kind, namespace, name string
	text                  []byte
}

func readObjects(file string) ([]object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found []object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		var head metav1.PartialObjectMetadata
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		if head.Namespace == "" {
			head.Namespace = "prod"
		}
		found = append(found, object{head.Kind, head.Namespace, head.Name, raw})
	}
}

func (l *local) find(kind, namespace, name string, into any) error {
	for _, o := range l.objects {
		if o.kind == kind && o.namespace == namespace && o.name == name {
			return json.Unmarshal(o.text, into)
		}
	}
	return fmt.Errorf("%s %s/%s is not in the manifests", kind, namespace, name)
}

func (l *local) Secret(namespace, name string) (map[string][]byte, error) {
	var secret corev1.Secret
	if err := l.find("Secret", namespace, name, &secret); err != nil {
		return nil, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	return secret.Data, nil
}

func (l *local) ConfigMap(namespace, name string) (map[string][]byte, error) {
	if name == "kube-root-ca.crt" {
		return map[string][]byte{"ca.crt": l.ca}, nil
	}
	var config corev1.ConfigMap
	if err := l.find("ConfigMap", namespace, name, &config); err != nil {
		return nil, err
	}
	data := config.BinaryData
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range config.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

func tokenOf(namespace, account string) string { return "token-of-" + namespace + "-" + account }

func (l *local) Token(pod *corev1.Pod, _ string, _ int64) (string, error) {
	return tokenOf(pod.Namespace, pod.Spec.ServiceAccountName), nil
}

// addAccount mounts what the API server's admission would: token, authority and namespace.
func addAccount(pod *corev1.Pod) {
	if pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken {
		return
	}
	name := "kube-api-access"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}})
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts, corev1.VolumeMount{
			Name: name, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
	}
}

func fromTemplate(o object, template *corev1.PodTemplateSpec, ordinal int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *template.Spec.DeepCopy()}
	pod.Name = fmt.Sprintf("%s-%d", o.name, ordinal)
	return finish(pod, o)
}

func finish(pod *corev1.Pod, o object) *corev1.Pod {
	pod.Namespace, pod.UID, pod.Spec.NodeName = o.namespace, types.UID("of-"+pod.Name), "local"
	addAccount(pod)
	return pod
}

// made are the pods that the objects ask for; a hook's pod is made when it is started by name.
func (l *local) made(hooks bool) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	for _, o := range l.objects {
		count, template := 1, (*corev1.PodTemplateSpec)(nil)
		switch o.kind {
		case "Deployment":
			var d appsv1.Deployment
			if err := json.Unmarshal(o.text, &d); err != nil {
				return nil, err
			}
			template = &d.Spec.Template
			if d.Spec.Replicas != nil {
				count = int(*d.Spec.Replicas)
			}
		case "StatefulSet":
			var s appsv1.StatefulSet
			if err := json.Unmarshal(o.text, &s); err != nil {
				return nil, err
			}
			template = &s.Spec.Template
			template.Spec.Subdomain = s.Spec.ServiceName
			if s.Spec.Replicas != nil {
				count = int(*s.Spec.Replicas)
			}
		case "Pod":
			var p corev1.Pod
			if err := json.Unmarshal(o.text, &p); err != nil {
				return nil, err
			}
			if hooks == (p.Annotations["helm.sh/hook"] != "") {
				all = append(all, finish(&p, o))
			}
		}
		for i := 0; !hooks && template != nil && i < count; i++ {
			pod := fromTemplate(o, template, i)
			if o.kind == "StatefulSet" {
				pod.Spec.Hostname = pod.Name
			}
			all = append(all, pod)
		}
	}
	return all, nil
}

// refresh lists the endpoints of each Service anew, as the control plane's controller would.
func (l *local) refresh() {
	l.one.Lock()
	defer l.one.Unlock()
	l.node.mu.Lock()
	var objects []*corev1.Pod
	for _, pod := range l.running {
		objects = append(objects, pod.Object())
	}
	l.node.mu.Unlock()
	sort.Slice(objects, func(i, j int) bool { return objects[i].Name < objects[j].Name })
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*discoveryv1.EndpointSlice
	for _, s := range l.services {
		slice := sliceOf(s, objects)
		was := l.slices[s.Name]
		if was != nil {
			slice.ResourceVersion = was.ResourceVersion
		}
		if was == nil || fmt.Sprint(was.Endpoints) != fmt.Sprint(slice.Endpoints) || asJSON(was) != asJSON(slice) {
			l.version++
			slice.ResourceVersion = strconv.Itoa(l.version)
		}
		l.slices[s.Name] = slice
		all = append(all, slice)
	}
	l.directory.Set(l.services, all)
	l.proxies.Follow(l.services)
	l.changed.Broadcast()
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func sliceOf(s *corev1.Service, objects []*corev1.Pod) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Name: s.Name + "-local", Namespace: s.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}}}
	slice.TypeMeta = metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}
	for _, port := range s.Spec.Ports {
		name, number := port.Name, targetPort(port, s, objects)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	if len(s.Spec.Selector) == 0 {
		return slice
	}
	for _, pod := range objects {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Namespace != s.Namespace || !selector.Matches(labels.Set(pod.Labels)) || pod.Status.PodIP == "" || ended {
			continue
		}
		serving, terminating := false, pod.DeletionTimestamp != nil
		for _, c := range pod.Status.Conditions {
			serving = serving || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		ready := s.Spec.PublishNotReadyAddresses || serving && !terminating
		e := discoveryv1.Endpoint{Addresses: []string{pod.Status.PodIP}, Conditions: discoveryv1.EndpointConditions{
			Ready: &ready, Serving: &serving, Terminating: &terminating}}
		if pod.Spec.Subdomain == s.Name {
			hostname := pod.Spec.Hostname
			e.Hostname = &hostname
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

func targetPort(port corev1.ServicePort, s *corev1.Service, objects []*corev1.Pod) int32 {
	if port.TargetPort.Type == intstr.Int {
		if port.TargetPort.IntVal != 0 {
			return port.TargetPort.IntVal
		}
		return port.Port
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for _, pod := range objects {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for _, c := range pod.Spec.Containers {
			for _, named := range c.Ports {
				if named.Name == port.TargetPort.StrVal {
					return named.ContainerPort
				}
			}
		}
	}
	return port.Port
}

// certificate is the API server's, for its address and its name in the cluster; it is its own authority.
func certificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}, IPAddresses: []net.IP{net.ParseIP(apiAddress)}}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), nil
}

// listen serves list and watch of EndpointSlices to who has the token of an account that a RoleBinding names.
func (l *local) listen() error {
	pair, authority, err := certificate()
	if err != nil {
		return err
	}
	l.ca = authority
	if err := pods.AddAddress(apiAddress); err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", apiAddress+":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	allowed := map[string]bool{}
	for _, o := range l.objects {
		var binding struct {
			Subjects []struct{ Kind, Name, Namespace string }
		}
		if o.kind == "RoleBinding" {
			if err := json.Unmarshal(o.text, &binding); err != nil {
				return err
			}
			for _, s := range binding.Subjects {
				allowed["Bearer "+tokenOf(s.Namespace, s.Name)] = true
			}
		}
	}
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed[r.Header.Get("Authorization")] {
				http.Error(w, `{"kind":"Status","code":403,"message":"no RoleBinding names this account"}`, http.StatusForbidden)
				return
			}
			namespace, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, slicesPath), "/")
			if !strings.HasPrefix(r.URL.Path, slicesPath) || rest != "endpointslices" || r.Method != http.MethodGet {
				http.Error(w, `{"kind":"Status","code":404,"message":"only EndpointSlices are here"}`, http.StatusNotFound)
				return
			}
			l.answer(w, r, namespace)
		}))
	}()
	return nil
}

func (l *local) answer(w http.ResponseWriter, r *http.Request, namespace string) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Namespace == namespace && selector.Matches(labels.Set(slice.Labels))
	}
	if r.URL.Query().Get("watch") == "" {
		list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"}}
		list.ResourceVersion = strconv.Itoa(l.version)
		for _, slice := range l.slices {
			if fits(slice) {
				list.Items = append(list.Items, *slice)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	told, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	gone := context.AfterFunc(r.Context(), func() {
		l.mu.Lock()
		l.changed.Broadcast()
		l.mu.Unlock()
	})
	defer gone()
	w.(http.Flusher).Flush()
	for r.Context().Err() == nil {
		for _, slice := range l.slices {
			if version, _ := strconv.Atoi(slice.ResourceVersion); version > told && fits(slice) {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": slice})
			}
		}
		told = l.version
		w.(http.Flusher).Flush()
		l.changed.Wait()
	}
}

// begin starts a pod; one of that name must not be there.
func (l *local) begin(pod *corev1.Pod) error {
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	name := pod.Namespace + "/" + pod.Name
	if l.running[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	l.running[name] = pods.Start(l.host, pod, func(*corev1.Pod) { go l.refresh() })
	return nil
}

func (l *local) orders(mux *http.ServeMux) {
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		for _, hooks := range []bool{false, true} {
			all, err := l.made(hooks)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			for _, pod := range all {
				if pod.Namespace+"/"+pod.Name == r.URL.Query().Get("pod") {
					if err := l.begin(pod); err != nil {
						http.Error(w, err.Error(), http.StatusConflict)
					}
					return
				}
			}
		}
		http.Error(w, "no such pod", http.StatusNotFound)
	})
	mux.HandleFunc("POST /delete", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("pod")
		pod := l.pod(name)
		if pod == nil {
			http.Error(w, "no such pod", http.StatusNotFound)
			return
		}
		begin := time.Now()
		pod.Terminating()
		l.refresh()
		pod.Stop(graceOf(pod))
		last := pod.Object()
		l.node.mu.Lock()
		delete(l.running, name)
		l.node.mu.Unlock()
		l.refresh()
		_ = json.NewEncoder(w).Encode(map[string]any{"pod": last, "seconds": time.Since(begin).Seconds()})
	})
}

func runManifests(ctx context.Context, n *node, file, control string) error {
	objects, err := readObjects(file)
	if err != nil {
		return err
	}
	l := &local{node: n, objects: objects, slices: map[string]*discoveryv1.EndpointSlice{}}
	l.changed = sync.NewCond(&l.mu)
	n.host.Sources = l
	// Where pods find the API server; it listens there itself.
	l.services = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec: corev1.ServiceSpec{ClusterIP: apiAddress}}}
	next := 20
	for _, o := range objects {
		if o.kind != "Service" {
			continue
		}
		s := &corev1.Service{}
		if err := json.Unmarshal(o.text, s); err != nil {
			return err
		}
		if s.Namespace = o.namespace; s.Spec.ClusterIP == "" {
			next++
			s.Spec.ClusterIP = fmt.Sprintf("10.96.1.%d", next)
		}
		l.services = append(l.services, s)
	}
	if err := l.listen(); err != nil {
		return err
	}
	all, err := l.made(false)
	if err != nil {
		return err
	}
	for _, pod := range all {
		if err := l.begin(pod); err != nil {
			return err
		}
	}
	l.refresh()
	mux := http.NewServeMux()
	l.orders(mux)
	mux.HandleFunc("GET /services", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(l.services) })
	if err := n.control(mux, control); err != nil {
		return err
	}
	<-ctx.Done()
	n.stopAll()
	return nil
}

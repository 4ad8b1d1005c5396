// The node agent: runs pods as processes, for a control plane or from a file of manifests.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"quire/tests/plane/agent/pods"
	"quire/tests/plane/agent/services"
)

const (
	dnsAddress    = "10.96.0.10"
	apiAddress    = "10.96.0.1"
	clusterDomain = "cluster.local"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "enter" {
		runtime.LockOSThread() // namespaces are entered by a thread
	}
}

// table is a flag NAME=PATH that may be given several times.
type table map[string]string

func (t table) String() string { return fmt.Sprint(map[string]string(t)) }

func (t table) Set(text string) error {
	name, path, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q is not NAME=PATH", text)
	}
	t[name] = path
	return nil
}

// node is what both ways to run have in common.
type node struct {
	host      *pods.Host
	directory *services.Directory
	proxies   *services.Proxies
	mu        sync.Mutex
	running   map[string]*pods.Pod // namespace/name
}

func newNode(folder string, images, claims table) (*node, error) {
	if err := pods.MakeNodeNetwork(); err != nil {
		return nil, err
	}
	directory := &services.Directory{}
	n := &node{directory: directory, proxies: services.NewProxies(directory, pods.AddAddress), running: map[string]*pods.Pod{}}
	n.host = &pods.Host{Folder: folder, Images: images, Claims: claims, Nameserver: dnsAddress, Kubernetes: []string{
		"KUBERNETES_SERVICE_HOST=" + apiAddress, "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443"}}
	if err := pods.AddAddress(dnsAddress); err != nil {
		return nil, err
	}
	return n, services.ServeDNS(directory, dnsAddress, clusterDomain)
}

func (n *node) pod(name string) *pods.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running[name]
}

// stopAll ends every pod within its own grace.
func (n *node) stopAll() {
	n.mu.Lock()
	var all sync.WaitGroup
	for _, pod := range n.running {
		all.Add(1)
		go func() {
			defer all.Done()
			pod.Stop(graceOf(pod))
		}()
	}
	n.mu.Unlock()
	all.Wait()
}

func graceOf(pod *pods.Pod) time.Duration {
	if s := pod.Object().Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}

type about struct {
	Pod       any            `json:"pod"`
	Processes map[string]int `json:"processes"`
}

// control answers the test that runs the agent: what runs, and a signal to a container.
func (n *node) control(mux *http.ServeMux, address string) error {
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		n.mu.Lock()
		all := map[string]about{}
		for name, pod := range n.running {
			all[name] = about{pod.Object(), pod.Processes()}
		}
		n.mu.Unlock()
		_ = json.NewEncoder(w).Encode(all)
	})
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.Atoi(r.URL.Query().Get("signal"))
		if pod := n.pod(r.URL.Query().Get("pod")); pod == nil {
			http.Error(w, "no such pod", http.StatusNotFound)
		} else if err == nil {
			err = pod.Kill(r.URL.Query().Get("container"), number)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("control at", listener.Addr())
	go func() { _ = http.Serve(listener, mux) }()
	return nil
}

func run() error {
	if len(os.Args) < 2 {
		return fmt.Errorf("use: agent run|node [flags]")
	}
	if os.Args[1] == "enter" {
		return pods.Enter(os.Args[2])
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	folder := flags.String("folder", "", "where files of pods and logs go")
	control := flags.String("control", "127.0.0.1:0", "where the test asks and orders")
	images, claims := table{}, table{}
	flags.Var(images, "image", "NAME=FOLDER: the root file system of an image")
	flags.Var(claims, "claim", "NAME=FOLDER: what a PersistentVolumeClaim mounts")
	manifests := flags.String("manifests", "", "run: a file of Kubernetes objects")
	kubeconfig := flags.String("kubeconfig", "", "node: how to reach the API server")
	names := flags.String("nodes", "node-a", "node: names of the nodes to be, with commas between")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	n, err := newNode(*folder, images, claims)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	switch os.Args[1] {
	case "run":
		return runManifests(ctx, n, *manifests, *control)
	case "node":
		return joinCluster(ctx, n, *kubeconfig, strings.Split(*names, ","), *control)
	}
	return fmt.Errorf("unknown way to run: %s", os.Args[1])
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

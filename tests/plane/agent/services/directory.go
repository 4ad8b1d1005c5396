// Package services stands in for what a cluster's nodes have of the network: a TCP proxy for each Service with an
// address, which follows its EndpointSlices, and the cluster's DNS.
package services

import (
	"net"
	"sort"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Directory is what proxies and DNS know of the cluster. Set() replaces all of it.
type Directory struct {
	mu       sync.RWMutex
	services map[string]*corev1.Service              // namespace/name
	slices   map[string][]*discoveryv1.EndpointSlice // namespace/name of their Service
}

func truth(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// Set takes all Services and EndpointSlices there are; they are not changed any more.
func (d *Directory) Set(services []*corev1.Service, slices []*discoveryv1.EndpointSlice) {
	byName := map[string]*corev1.Service{}
	for _, s := range services {
		byName[s.Namespace+"/"+s.Name] = s
	}
	ofService := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range slices {
		if name := s.Labels[discoveryv1.LabelServiceName]; name != "" && s.AddressType == discoveryv1.AddressTypeIPv4 {
			ofService[s.Namespace+"/"+name] = append(ofService[s.Namespace+"/"+name], s)
		}
	}
	d.mu.Lock()
	d.services, d.slices = byName, ofService
	d.mu.Unlock()
}

func (d *Directory) service(name string) *corev1.Service {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.services[name]
}

// backends are the addresses, with port, to which a connection to a Service's port may go: those that are ready, or,
// where there are none, those that serve while they end.
func (d *Directory) backends(service, port string) []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var ready, serving []string
	for _, slice := range d.slices[service] {
		for _, p := range slice.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				address := net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port)))
				if truth(e.Conditions.Ready, true) {
					ready = append(ready, address)
				} else if truth(e.Conditions.Serving, false) {
					serving = append(serving, address)
				}
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return serving
}

// addresses are those that DNS gives for a Service, or for one host of it.
func (d *Directory) addresses(service, host string) (found []string, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s := d.services[service]
	if s == nil {
		return nil, false
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone && host == "" {
		return []string{s.Spec.ClusterIP}, s.Spec.ClusterIP != ""
	}
	seen := map[string]bool{}
	for _, slice := range d.slices[service] {
		for _, e := range slice.Endpoints {
			if host != "" && (e.Hostname == nil || *e.Hostname != host) {
				continue
			}
			// The controller says ready of all of a Service that publishes those that are not.
			if truth(e.Conditions.Ready, true) && !seen[e.Addresses[0]] {
				seen[e.Addresses[0]] = true
				found = append(found, e.Addresses[0])
			}
		}
	}
	sort.Strings(found)
	return found, host == "" || len(found) > 0
}

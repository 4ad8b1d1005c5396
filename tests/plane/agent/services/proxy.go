package services

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const dialLimit = 2 * time.Second

// Proxies listen at the address of each Service, port by port. Without endpoints a connection is reset at once.
type Proxies struct {
	directory  *Directory
	addAddress func(string) error
	mu         sync.Mutex
	listening  map[string]net.Listener // address and port
}

func NewProxies(d *Directory, addAddress func(string) error) *Proxies {
	return &Proxies{directory: d, addAddress: addAddress, listening: map[string]net.Listener{}}
}

// Follow opens what Services have got and closes what they have lost.
func (p *Proxies) Follow(services []*corev1.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[string]bool{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for _, port := range s.Spec.Ports {
			at := net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port)))
			if port.Protocol == corev1.ProtocolUDP || wanted[at] {
				continue
			}
			wanted[at] = true
			if p.listening[at] != nil {
				continue
			}
			if err := p.addAddress(s.Spec.ClusterIP); err != nil {
				fmt.Println("proxy:", err)
				continue
			}
			listener, err := net.Listen("tcp", at)
			if err != nil {
				fmt.Println("proxy:", err)
				continue
			}
			p.listening[at] = listener
			go p.serve(listener, s.Namespace+"/"+s.Name, port.Name)
		}
	}
	for at, listener := range p.listening {
		if !wanted[at] {
			listener.Close()
			delete(p.listening, at)
		}
	}
}

func (p *Proxies) serve(listener net.Listener, service, port string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go p.pass(client.(*net.TCPConn), service, port)
	}
}

// pass connects a client with one of the endpoints; it tries each once.
func (p *Proxies) pass(client *net.TCPConn, service, port string) {
	defer client.Close()
	backends := p.directory.backends(service, port)
	rand.Shuffle(len(backends), func(i, j int) { backends[i], backends[j] = backends[j], backends[i] })
	for _, address := range backends {
		connection, err := net.DialTimeout("tcp", address, dialLimit)
		if err != nil {
			continue
		}
		pump(client, connection.(*net.TCPConn))
		return
	}
	_ = client.SetLinger(0) // a reset says that nobody is there
}

// pump passes bytes both ways, and an end of one direction on as such.
func pump(a, b *net.TCPConn) {
	defer b.Close()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Add(1)
		go func() {
			defer both.Done()
			if _, err := io.Copy(way[1], way[0]); err != nil {
				// A reset of one side is one of the other.
				_ = way[0].SetLinger(0)
				_ = way[1].SetLinger(0)
				way[0].Close()
				way[1].Close()
				return
			}
			_ = way[1].CloseWrite() // it may be closed already
		}()
	}
	both.Wait()
}

package services

import (
	"net"
	"strings"

	"github.com/miekg/dns"
)

const timeToLive = 1 // second

// ServeDNS answers for the cluster's own names, SERVICE.NAMESPACE.svc.DOMAIN and HOST.SERVICE.NAMESPACE.svc.DOMAIN; of
// other names it knows none.
func ServeDNS(d *Directory, address, domain string) error {
	suffix := ".svc." + domain + "."
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetReply(question)
		answer.Authoritative = true
		answer.Rcode = dns.RcodeNameError
		if len(question.Question) == 1 {
			asked := question.Question[0]
			labels := strings.Split(strings.TrimSuffix(strings.ToLower(asked.Name), suffix), ".")
			if strings.HasSuffix(strings.ToLower(asked.Name), suffix) && (len(labels) == 2 || len(labels) == 3) {
				host := ""
				if len(labels) == 3 {
					host = labels[0]
				}
				last := labels[len(labels)-2:]
				found, known := d.addresses(last[1]+"/"+last[0], host)
				if known {
					answer.Rcode = dns.RcodeSuccess
				}
				for _, one := range found {
					if asked.Qtype == dns.TypeA || asked.Qtype == dns.TypeANY {
						header := dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: timeToLive}
						answer.Answer = append(answer.Answer, &dns.A{Hdr: header, A: net.ParseIP(one)})
					}
				}
			}
		}
		_ = w.WriteMsg(answer) // who asked may be gone
	})
	packets, err := net.ListenPacket("udp", net.JoinHostPort(address, "53"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "53"))
	if err != nil {
		return err
	}
	go func() { _ = (&dns.Server{PacketConn: packets, Handler: handler}).ActivateAndServe() }()
	go func() { _ = (&dns.Server{Listener: listener, Handler: handler}).ActivateAndServe() }()
	return nil
}

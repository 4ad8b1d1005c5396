package pods

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func portOf(c *corev1.Container, port intstr.IntOrString) (string, error) {
	if port.Type == intstr.Int {
		return strconv.Itoa(port.IntValue()), nil
	}
	for _, named := range c.Ports {
		if named.Name == port.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	if _, err := strconv.Atoi(port.StrVal); err == nil {
		return port.StrVal, nil
	}
	return "", fmt.Errorf("no port is called %s", port.StrVal)
}

// httpGet takes any certificate and follows no redirection to another host, as the kubelet.
func (p *Pod) httpGet(ctx context.Context, c *corev1.Container, get *corev1.HTTPGetAction) error {
	port, err := portOf(c, get.Port)
	if err != nil {
		return err
	}
	scheme, host := "http", get.Host
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	if host == "" {
		host = p.address()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+get.Path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/1.34")
	for _, header := range get.HTTPHeaders {
		request.Header.Set(header.Name, header.Value)
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// grpcCheck asks grpc.health.v1.Health/Check: a message of one string there, of one number back.
func (p *Pod) grpcCheck(ctx context.Context, action *corev1.GRPCAction) error {
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	message := []byte{}
	if service != "" {
		message = append([]byte{0x0a, byte(len(service))}, service...)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	address := net.JoinHostPort(p.address(), strconv.Itoa(int(action.Port)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/grpc.health.v1.Health/Check",
		bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	transport := &http2.Transport{AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1024))
	if err != nil {
		return err
	}
	status := answer.Trailer.Get("Grpc-Status")
	if status == "" {
		status = answer.Header.Get("Grpc-Status")
	}
	if status != "0" || len(body) != 7 || body[5] != 0x08 || body[6] != 1 {
		return fmt.Errorf("not serving: status %s, %x", status, body)
	}
	return nil
}

// handle runs the action of a probe or of a hook.
func (c *Container) handle(ctx context.Context, exec *corev1.ExecAction, get *corev1.HTTPGetAction,
	socket *corev1.TCPSocketAction, grpc *corev1.GRPCAction) error {
	switch {
	case get != nil:
		return c.pod.httpGet(ctx, c.spec, get)
	case socket != nil:
		port, err := portOf(c.spec, socket.Port)
		if err != nil {
			return err
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(c.pod.address(), port))
		if err == nil {
			connection.Close()
		}
		return err
	case grpc != nil:
		return c.pod.grpcCheck(ctx, grpc)
	case exec != nil:
		return c.exec(ctx, exec.Command)
	}
	return fmt.Errorf("an action that this node does not know")
}

func orElse(value, otherwise int32) int {
	if value == 0 {
		return int(otherwise)
	}
	return int(value)
}

// watch asks a probe until the context ends, and tells of each turn: `good` after enough successes, `bad` after
// enough failures. It returns when `told` says that it has heard enough.
func (c *Container) watch(ctx context.Context, probe *corev1.Probe, told func(good bool, why error) bool) {
	period := time.Duration(orElse(probe.PeriodSeconds, 10)) * time.Second
	limit := time.Duration(orElse(probe.TimeoutSeconds, 1)) * time.Second
	successes, failures := 0, 0
	wait := time.NewTimer(time.Duration(probe.InitialDelaySeconds) * time.Second)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		wait.Reset(period)
		once, cancel := context.WithTimeout(ctx, limit)
		err := c.handle(once, probe.Exec, probe.HTTPGet, probe.TCPSocket, probe.GRPC)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		if successes >= orElse(probe.SuccessThreshold, 1) && told(true, nil) {
			return
		}
		if failures >= orElse(probe.FailureThreshold, 3) {
			failures = 0
			if told(false, err) {
				return
			}
		}
	}
}

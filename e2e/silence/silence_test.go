package silence_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status/clusterstatus"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability/probe"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

// peer accepts connections at all loopback addresses, reads their data, and never responds.
type peer struct {
	addr           netip.AddrPort
	open, accepted atomic.Int64 // numbers of connections
}

// newPeer returns a peer that never sends, or only completes the TLS handshake, in which it offers these protocols.
func newPeer(t *testing.T, completesTLS bool, protocols ...string) *peer {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &peer{}
	p.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.MustParseAddrPort(listener.Addr().String()).Port())
	tlsServer := httptest.NewTLSServer(nil) // for its certificate
	config := &tls.Config{Certificates: tlsServer.TLS.Certificates, NextProtos: protocols, MinVersion: tls.VersionTLS12}
	tlsServer.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.open.Add(1)
			p.accepted.Add(1)
			go func() {
				defer p.open.Add(-1)
				defer func() { _ = conn.Close() }()
				if completesTLS {
					conn = tls.Server(conn, config)
				}
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return p
}

// api returns a configuration with which our programs connect to the API server, as a command or a daemon. A daemon's
// requests have no timeout, because watches have none.
func (p *peer) api(t *testing.T, timeout time.Duration) *rest.Config {
	t.Helper()
	config, err := kube.Connection{Server: "https://" + p.addr.String(), Timeout: timeout}.Config()
	must.Succeed(t, err)
	config.Insecure = true
	return config
}

// client sends requests to a peer, once per round.
type client struct {
	newRound func(t *testing.T, p *peer) (round func(ctx context.Context) error)
	// onlyPlain is set if the client does not use TLS, so that there is no handshake.
	onlyPlain bool
	// needsNoResponse is set if the client needs only the connection, and no response.
	needsNoResponse bool
}

// clients returns all clients that our programs have.
func clients() map[string]client {
	return map[string]client{
		"the webhook pulls demand from proxies": {newRound: func(_ *testing.T, p *peer) func(context.Context) error {
			puller := pull.New(p.addr.Port(), nil)
			var targets []pull.Target
			for i := range byte(5) {
				targets = append(targets, pull.Target{Node: strconv.Itoa(int(i)), Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1 + i})})
			}
			return func(ctx context.Context) error {
				return puller.Pull(ctx, "token", targets, 0, func(string, demandapi.Page) {}).Sample()
			}
		}},
		"a command queries the running proxy": {onlyPlain: true, newRound: func(_ *testing.T, p *peer) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := status.FetchPage(ctx, p.addr.String(), "/summary")
				return err
			}
		}},
		"a command queries the API server, and through it the proxies": {newRound: func(t *testing.T, p *peer) func(context.Context) error {
			config := p.api(t, time.Second)
			return func(ctx context.Context) error {
				_, err := clusterstatus.CheckNodes(ctx, config, clusterstatus.Options{Namespace: "kube-system", Port: 10256})
				return err
			}
		}},
		"a daemon lists from the API server": {newRound: func(t *testing.T, p *peer) func(context.Context) error {
			clients, err := kubernetes.NewForConfig(p.api(t, 0))
			must.Succeed(t, err)
			return func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // it would retry for longer
				defer cancel()
				_, err := clients.CoreV1().Services("").List(ctx, metav1.ListOptions{})
				return err
			}
		}},
		"a proxy dials a node": {onlyPlain: true, needsNoResponse: true, newRound: func(t *testing.T, p *peer) func(context.Context) error {
			return func(ctx context.Context) error {
				if kind, _ := probe.Dial(ctx, p.addr, wait.Timeout); kind != reachability.Accepted {
					t.Errorf("dial result %v, want %v", kind, reachability.Accepted)
				}
				return nil
			}
		}},
	}
}

// TestAnUnresponsivePeerLeaksNothing checks that each of our clients times out at a peer that accepts connections and
// sends nothing, and leaks neither connections nor goroutines, however many requests it sends.
func TestAnUnresponsivePeerLeaksNothing(t *testing.T) {
	// client-go sends HTTP/2 pings to detect whether a server responds, by default after 45 s.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	before := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		for name, client := range clients() {
			peers := map[string]*peer{"before the handshake": newPeer(t, false)}
			if !client.onlyPlain {
				peers["after the handshake"] = newPeer(t, true, "h2")
			}
			for when, peer := range peers {
				t.Run(name+", "+when, func(t *testing.T) {
					t.Parallel()
					round := client.newRound(t, peer)
					for range 3 {
						if err := round(t.Context()); (err == nil) != client.needsNoResponse {
							t.Errorf("error %v, want success: %t", err, client.needsNoResponse)
						}
					}
					wait.Until(t, "a connection that the peer accepted", func() bool { return peer.accepted.Load() > 0 })
					wait.Equal(t, "open connections", 0, func() int { return int(peer.open.Load()) })
				})
			}
		}
	})
	wait.Until(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before })
}

package kube

import (
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// maxAddrs bounds the number of stored addresses, because a name may resolve to other ones each time.
const maxAddrs = 64

// PeerTracker collects the addresses at which this process reaches the API server: those that the clients of a
// configuration connect to, which may belong to a proxy in front of it, and those that the server's name resolved to.
// It is safe for concurrent use.
type PeerTracker struct {
	mutex sync.Mutex
	addrs []netip.AddrPort // the newest last
	// changed is notified when an address is added.
	changed notify.Signal
}

// NewPeerTracker returns an empty PeerTracker that traces the clients created from a configuration. These still share a
// connection, which clients with their own dial function would not.
func NewPeerTracker(config *rest.Config) *PeerTracker {
	p := &PeerTracker{changed: notify.NewSignal()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &tracingTransport{next, p} })
	return p
}

// Addrs returns the addresses, sorted.
func (p *PeerTracker) Addrs() []netip.AddrPort {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.SortedFunc(slices.Values(p.addrs), netip.AddrPort.Compare)
}

// Changed returns a channel that is notified when an address is added.
func (p *PeerTracker) Changed() <-chan struct{} { return p.changed }

func (p *PeerTracker) add(addr netip.AddrPort) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if slices.Contains(p.addrs, addr) {
		return
	}
	p.addrs = append(p.addrs, addr)
	p.addrs = p.addrs[max(0, len(p.addrs)-maxAddrs):]
	p.changed.Notify()
}

// tracingTransport is a transport that records its connections.
type tracingTransport struct {
	next  http.RoundTripper
	peers *PeerTracker
}

// RoundTrip sends a request and traces its connection.
func (t *tracingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(request.Context(), t.peers.trace(request))
	return t.next.RoundTrip(request.WithContext(ctx))
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *tracingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// trace records what the server's name resolves to and which addresses are dialled, even without a reply.
func (p *PeerTracker) trace(request *http.Request) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSDone: func(info httptrace.DNSDoneInfo) {
			for _, resolved := range info.Addrs {
				if addr, ok := netip.AddrFromSlice(resolved.IP); ok {
					p.add(netip.AddrPortFrom(addr, portOf(request)))
				}
			}
		},
		ConnectStart: func(_, address string) {
			if addr, err := netip.ParseAddrPort(address); err == nil {
				p.add(addr)
			}
		},
	}
}

func portOf(request *http.Request) uint16 {
	if port, err := strconv.ParseUint(request.URL.Port(), 10, 16); err == nil {
		return uint16(port)
	}
	if request.URL.Scheme == "http" {
		return 80
	}
	return 443
}

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

// maxServers bounds how many addresses are remembered: a name may resolve to others each time.
const maxServers = 64

// PeerTracker knows where this process reaches the API server: what the clients of a configuration connect to, possibly a
// proxy in front of it, and what its name resolved to each time. It may be used by several goroutines.
type PeerTracker struct {
	mutex sync.Mutex
	addrs []netip.AddrPort // the newest last
	// changed holds a signal if there are more addresses than when the signal was last taken out.
	changed notify.Signal
}

// NewPeerTracker returns a Dialled that knows no address yet, and traces the clients that are made from a configuration.
// These still share a connection, as clients with a dial function of their own would not.
func NewPeerTracker(config *rest.Config) *PeerTracker {
	d := &PeerTracker{changed: notify.NewSignal()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &tracingTransport{next, d} })
	return d
}

// Addrs returns the addresses, sorted.
func (d *PeerTracker) Addrs() []netip.AddrPort {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.SortedFunc(slices.Values(d.addrs), netip.AddrPort.Compare)
}

// Changed signals that there are more addresses.
func (d *PeerTracker) Changed() <-chan struct{} { return d.changed }

func (d *PeerTracker) add(addr netip.AddrPort) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if slices.Contains(d.addrs, addr) {
		return
	}
	d.addrs = append(d.addrs, addr)
	d.addrs = d.addrs[max(0, len(d.addrs)-maxServers):]
	d.changed.Notify()
}

// tracingTransport is a transport whose connections are noted.
type tracingTransport struct {
	next    http.RoundTripper
	dialled *PeerTracker
}

// RoundTrip sends a request.
func (t *tracingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(request.Context(), t.dialled.trace(request))
	return t.next.RoundTrip(request.WithContext(ctx))
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *tracingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// trace notes what the server's name resolves to, and what is dialled, whether or not anything answers there.
func (d *PeerTracker) trace(request *http.Request) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSDone: func(found httptrace.DNSDoneInfo) {
			for _, one := range found.Addrs {
				if addr, ok := netip.AddrFromSlice(one.IP); ok {
					d.add(netip.AddrPortFrom(addr, portOf(request)))
				}
			}
		},
		ConnectStart: func(_, address string) {
			if addr, err := netip.ParseAddrPort(address); err == nil {
				d.add(addr)
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

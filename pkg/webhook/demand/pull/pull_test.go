package pull_test

import (
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

const interval = 30 * time.Second

// newTestPuller returns a puller, and starts one server for many nodes, at any loopback address.
func newTestPuller(t *testing.T, response http.HandlerFunc) *pull.Puller {
	t.Helper()
	server := httptest.NewUnstartedServer(response)
	listener, err := net.Listen("tcp4", "0.0.0.0:0") // including all loopback addresses
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // errors of clients that timed out
	server.StartTLS()
	t.Cleanup(server.Close)
	return pull.New(netip.MustParseAddrPort(server.Listener.Addr().String()).Port(), nil)
}

var loopback = []pull.Target{{Node: "a-0", Addr: netip.MustParseAddr("127.0.0.1")}}

func TestPullSendsTokenAndCursor(t *testing.T) {
	var requests []string
	puller := newTestPuller(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		_, _ = w.Write(demandapi.Page{Cursor: fmt.Sprint("c", len(requests)), Duration: interval,
			Counts: map[string]uint64{"shop/web": 7}}.Text())
	})
	for range 2 {
		var reports []string
		errs := puller.Pull(t.Context(), "secret", loopback, 0, func(node string, page demandapi.Page) {
			reports = append(reports, fmt.Sprint(node, page.Counts))
		})
		if len(errs) > 0 || fmt.Sprint(reports) != "[a-0map[shop/web:7]]" {
			t.Errorf("reports %v, errors %v", reports, errs)
		}
	}
	want := "[GET /demand?after= Bearer secret GET /demand?after=c1 Bearer secret]"
	if fmt.Sprint(requests) != want {
		t.Errorf("requests %v, want %s", requests, want)
	}
}

func TestPullErrorContainsNode(t *testing.T) {
	for name, response := range map[string]http.HandlerFunc{
		"forbidden":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"not a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"endless":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.2/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := newTestPuller(t, response).Pull(t.Context(), "secret", loopback, 0,
				func(string, demandapi.Page) { t.Error("unexpected report") })
			if len(errs) != 1 || errs["a-0"] == nil || !strings.Contains(errs["a-0"].Error(), "node a-0 at 127.0.0.1:") {
				t.Errorf("errors %v, want one with the node", errs)
			}
		})
	}
}

// TestUnresponsiveNodesDoNotDelayOthers checks a cluster in which two thirds of the nodes do not respond, as if two of
// three zones were unreachable.
func TestUnresponsiveNodesDoNotDelayOthers(t *testing.T) {
	const count = 150
	end := make(chan struct{})
	puller := newTestPuller(t, func(w http.ResponseWriter, r *http.Request) {
		if host := netip.MustParseAddrPort(r.Host).Addr().As4(); host[1] != 0 {
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = w.Write(demandapi.Page{Cursor: "c", Duration: interval}.Text())
	})
	defer close(end)
	var targets []pull.Target
	for number := range count {
		addr := netip.AddrFrom4([4]byte{127, byte(number % 3), byte(number >> 8), byte(number)})
		targets = append(targets, pull.Target{Node: fmt.Sprint("node-", number), Addr: addr})
	}
	began, reported, last := time.Now(), 0, time.Duration(0)
	errs := puller.Pull(t.Context(), "secret", targets, 3*time.Second, func(string, demandapi.Page) {
		reported++
		last = time.Since(began)
	})
	if reported != count/3 || len(errs) != count-reported {
		t.Errorf("%d nodes reported, and %d failed, of %d", reported, len(errs), count)
	}
	if total := time.Since(began); last > total-2*time.Second { // the unresponsive ones have five seconds each
		t.Errorf("the last response arrived after %s, and the round ended after %s", last, total)
	}
}

// TestPullAndAggregate uses one loopback address for each node, and one server for all. All nodes connect to
// fifty Services, and those of one zone four times as often as others. A benchmark in e2e/bench/webhook has 5,000
// nodes.
func TestPullAndAggregate(t *testing.T) {
	const count = 200
	var requests atomic.Int64
	puller := newTestPuller(t, func(w http.ResponseWriter, r *http.Request) {
		page := demandapi.Page{Cursor: fmt.Sprint(requests.Add(1)), Duration: interval, Counts: map[string]uint64{}}
		host := netip.MustParseAddrPort(r.Host).Addr().As4()
		for service := range 50 {
			page.Counts[fmt.Sprintf("shop/web-%d", service)] = 30
			if host[1] == 1 {
				page.Counts[fmt.Sprintf("shop/web-%d", service)] = 120
			}
		}
		_, _ = w.Write(page.Text())
	})
	var nodes []cluster.Node
	var targets []pull.Target
	for number := range count {
		name, zone := fmt.Sprint("node-", number), number%4
		nodes = append(nodes, cluster.Node{Name: name, Zone: fmt.Sprint("zone-", zone), Weight: 1})
		addr := netip.AddrFrom4([4]byte{127, byte(zone), byte(number >> 8), byte(number)})
		targets = append(targets, pull.Target{Node: name, Addr: addr})
	}
	var aggregator demand.Aggregator
	var round demand.Round
	now := time.Unix(1e9, 0)
	for _, within := range []time.Duration{15 * time.Second, 2 * time.Second, 2 * time.Second} { // the first round opens all connections
		now = now.Add(interval)
		errs := puller.Pull(t.Context(), "secret", targets, within, func(node string, page demandapi.Page) {
			aggregator.AddReport(node, now, page)
		})
		if len(errs) > 0 {
			t.Fatalf("%d of %d requests failed: %v", len(errs), count, errs)
		}
		round = aggregator.Aggregate(now, nodes, func(string) (demand.Service, bool) { return demand.Service{}, true })
	}
	report := round.Services["shop/web-7"]
	if round.Reporting != count || len(round.Services) != 50 || requests.Load() != 3*count {
		t.Errorf("%d nodes reported, %d Services, %d requests", round.Reporting, len(round.Services), requests.Load())
	}
	if report.MostSkewedZone != "zone-1" || math.Abs(report.MaxSkew-4./7*4) > 0.01 {
		t.Errorf("skew %.3f in %s, want %.3f in zone-1", report.MaxSkew, report.MostSkewedZone, 4./7*4)
	}
}

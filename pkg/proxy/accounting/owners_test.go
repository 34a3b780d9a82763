//go:build linux

package accounting

import (
	"fmt"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func newTestOwners() (*Owners, *time.Time) {
	now := start
	return NewOwners(func() time.Time { return now }), &now
}

func accept(o *Owners, decisions ...selection.Decision) {
	o.Accept(decisions[0].Service.Name, o.Digest(decisions))
}

// said is an origin in a word: shop/web same_zone topology.kubernetes.io/zone b.
func said(origin *Origin) string {
	if origin == nil {
		return "nobody's"
	}
	return fmt.Sprint(origin.Service, " ", origin.Place.Locality, " ", origin.Place.Tier, " ", origin.Place.Zone)
}

func TestWhoseAConnectionIs(t *testing.T) {
	o, _ := newTestOwners()
	accept(o,
		decision(web, clusterIP("10.96.0.1:80"), map[string]string{
			"10.0.1.1:8080": "node-1", "10.0.2.1:8080": "node-2", "10.0.3.1:8080": "node-3", "10.0.9.1:8080": "node-9", "10.0.9.2:8080": "",
		}, policy.Hostname, policy.Zone, policy.AnyNode),
		decision(web, nodePort(30080), map[string]string{"10.0.3.1:8080": "node-3"}),
	)
	accept(o, decision(api, clusterIP("[fd00:96::1]:443"), map[string]string{"[fd00::3]:443": "node-3"}))
	for name, test := range map[string]struct {
		entry conntrack.Entry
		want  string
	}{
		"this node":    {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), "shop/web same_node kubernetes.io/hostname a"},
		"this zone":    {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.2.1:8080"), "shop/web same_zone topology.kubernetes.io/zone a"},
		"another zone": {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), "shop/web other_zone * b"},
		"a node without a zone": {
			entry("10.0.1.9:1", "10.96.0.1:80", "10.0.9.1:8080"), "shop/web unknown * ",
		},
		"no node":                          {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.9.2:8080"), "shop/web unknown * "},
		"an endpoint that nobody knows":    {entry("10.0.1.9:1", "10.96.0.1:80", "10.0.8.8:8080"), "shop/web unknown none "},
		"a node port":                      {entry("10.0.1.9:1", "192.0.2.1:30080", "10.0.3.1:8080"), "shop/web other_zone none b"},
		"another program's, of its number": {entry("10.0.1.9:1", "192.0.2.1:30080", "10.0.8.8:8080"), "nobody's"},
		"a port mapping":                   {entry("10.0.1.9:1", "192.0.2.1:8080", "10.0.3.1:8080"), "nobody's"},
		"IPv6":                             {entry("[fd00::9]:1", "[fd00:96::1]:443", "[fd00::3]:443"), "shop/api other_zone none b"},
		"no translation": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Status = conntrack.SeenReply
				return e
			}(), "nobody's",
		},
		"another protocol": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Protocol = model.UDP
				return e
			}(), "nobody's",
		},
		"another zone of conntrack": {
			func() conntrack.Entry {
				e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
				e.Zone = 7
				return e
			}(), "nobody's",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(o.Of(&test.entry)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestWhatLeftIsRememberedForTenMinutes: endpoints, frontends and Services, for a connection of TCP ends late.
func TestWhatLeftIsRememberedForTenMinutes(t *testing.T) {
	o, now := newTestOwners()
	frontend := clusterIP("10.96.0.1:80")
	e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080")
	check := func(when, want string) {
		t.Helper()
		o.Synced(selection.Sync{})
		if got := said(o.Of(&e)); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	accept(o, decision(web, frontend, map[string]string{"10.0.3.1:8080": "node-3"}))
	check("at first", "shop/web other_zone none b")
	accept(o, decision(web, frontend, map[string]string{"10.0.1.1:8080": "node-1"}))
	check("the endpoint left", "shop/web other_zone none b")
	*now = now.Add(9 * time.Minute)
	accept(o, decision(web, frontend, map[string]string{"10.0.2.1:8080": "node-2"}))
	check("nine minutes later", "shop/web other_zone none b")
	*now = now.Add(2 * time.Minute)
	accept(o, decision(web, frontend, map[string]string{"10.0.2.2:8080": "node-2"}))
	check("eleven minutes later", "shop/web unknown none ")
	accept(o, decision(web, frontend, map[string]string{"10.0.3.1:8080": "node-3"}))
	check("it is back", "shop/web other_zone none b")
	o.Accept(web, nil)
	check("the Service is gone", "shop/web other_zone none b")
	if o.Has(web) {
		t.Error("the Service is still there")
	}
	*now = now.Add(9 * time.Minute)
	check("for nine minutes", "shop/web other_zone none b")
	*now = now.Add(2 * time.Minute)
	check("for eleven minutes", "nobody's")
	if len(o.left)+len(o.retired) > 0 {
		t.Errorf("%v and %v are kept", o.left, o.retired)
	}
}

// TestAFrontendIsItsNewestOwners, in whichever order they are heard of.
func TestAFrontendIsItsNewestOwners(t *testing.T) {
	frontend, endpoint := clusterIP("10.96.0.1:80"), map[string]string{"10.0.1.1:8080": "node-1"}
	e := entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080")
	webs, apis := decision(web, frontend, endpoint), decision(api, frontend, endpoint)
	without := decision(web, clusterIP("10.96.0.2:80"), endpoint)
	for name, move := range map[string]func(*Owners){
		"the new one first":       func(o *Owners) { accept(o, apis); accept(o, without) },
		"the old one first":       func(o *Owners) { accept(o, without); accept(o, apis) },
		"the old one loses first": func(o *Owners) { o.Lose(web, []model.Frontend{frontend.Frontend}); accept(o, apis) },
		"the old one loses later": func(o *Owners) { accept(o, apis); o.Lose(web, []model.Frontend{frontend.Frontend}) },
		"the old one is deleted":  func(o *Owners) { accept(o, apis); o.Accept(web, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			o, now := newTestOwners()
			accept(o, webs)
			move(o)
			*now = now.Add(time.Hour)
			o.Synced(selection.Sync{})
			if got := said(o.Of(&e)); got != "shop/api same_node none a" {
				t.Errorf("it is %q", got)
			}
			o.Lose(api, []model.Frontend{frontend.Frontend})
			accept(o, webs)
			if got := said(o.Of(&e)); got != "shop/web same_node none a" {
				t.Errorf("then it is %q", got)
			}
		})
	}
}

// TestAskingAllocatesNothing: the kernel tells of thousands of ends a second.
func TestAskingAllocatesNothing(t *testing.T) {
	o, _ := newTestOwners()
	accept(o, decision(web, clusterIP("10.96.0.1:80"), map[string]string{"10.0.1.1:8080": "node-1"}))
	l := NewLedger(Settings{PerService: true, MaxServices: 1})
	e := moved(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	if got := testing.AllocsPerRun(1000, func() { l.Ended(&e, o.Of(&e), start) }); got > 1 {
		t.Errorf("%v allocations for each end", got)
	}
}

func BenchmarkEnd(b *testing.B) {
	o, _ := newTestOwners()
	accept(o, decision(web, clusterIP("10.96.0.1:80"), map[string]string{"10.0.1.1:8080": "node-1"}))
	l := NewLedger(Settings{PerService: true, MaxServices: 1})
	e := moved(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	b.ReportAllocs()
	for b.Loop() {
		l.Ended(&e, o.Of(&e), start)
	}
}

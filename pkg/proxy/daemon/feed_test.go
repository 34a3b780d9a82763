package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// newTestFeed returns the feed of node-a, without an API server.
func newTestFeed(changes chan<- model.Change, log *slog.Logger, status *status.Status) *feed {
	c := &common{options: &Options{Node: "node-a"}, log: log, status: status, recorder: metrics.NewRecorder()}
	return &feed{common: c, barrier: &startupBarrier{changes: changes}, findings: newFindings(c, eventReporter{})}
}

func TestLikelyMistakesInAChangeAreLogged(t *testing.T) {
	service := model.Change{Services: map[model.ObjectName]*model.Service{{Namespace: "shop", Name: "web"}: {}}}
	present := nodeChange(&model.Node{Name: "node-a"})
	const (
		noNode   = `level=WARN msg="there is no Node with this name; its labels are unknown until one is created" node=node-a`
		nodeGone = `level=WARN msg="this Node was deleted; keeping its last known labels and addresses" node=node-a`
	)
	for name, test := range map[string]struct {
		changes []model.Change
		want    []string
	}{
		"the Node exists":                  {[]model.Change{present}, nil},
		"the Node is missing at the start": {[]model.Change{{}, service}, []string{noNode}},
		"the Node is deleted later":        {[]model.Change{present, nodeChange(nil)}, []string{nodeGone}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, logOf(t, ruleset.Config{}, test.changes)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProbableMistakesInSettingsAreLogged(t *testing.T) {
	const (
		open   = "level=WARN msg=\"--nodeport-addresses has no IPv6 CIDR, so node ports are served on all IPv6 addresses of this node\""
		noPort = "level=WARN msg=\"node ports are not served: --nodeport-addresses is primary, and the Node has no address\" node=node-a"
		noPods = "level=WARN msg=\"pods are not recognized: --detect-local-mode is NodeCIDR, and the Node has no podCIDR\" node=node-a"
	)
	const loopback = "level=WARN msg=\"--nodeport-addresses names loopback, which serves node ports only if the feature gate " +
		"KubeProxyNFTablesLocalhostNodePorts is on\""
	primary := ruleset.Config{Families: model.Families, NodePorts: model.NodePortAddresses{Primary: true}}
	primaryAnd := func(cidr string) ruleset.Config {
		config := primary
		config.NodePorts.Prefixes = []netip.Prefix{netip.MustParsePrefix(cidr)}
		return config
	}
	ipv4 := ruleset.Config{
		Families:  model.Families,
		NodePorts: model.NodePortAddresses{Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
	}
	onlyIPv4 := ruleset.Config{Families: model.Families[:1], NodePorts: ipv4.NodePorts}
	nodeCIDR := ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{PodCIDRs: true}}
	bare := nodeChange(&model.Node{Name: "node-a"})
	full := nodeChange(&model.Node{
		Name: "node-a", Addresses: []netip.Addr{netip.MustParseAddr("172.18.0.2")},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
	})
	other := model.Change{Services: map[model.ObjectName]*model.Service{{Namespace: "shop", Name: "web"}: {}}}
	for name, test := range map[string]struct {
		config  ruleset.Config
		changes []model.Change
		want    []string
	}{
		"CIDRs of one family only, logged at the start":      {ipv4, []model.Change{bare, other, full}, []string{open}},
		"CIDRs of the only family":                           {onlyIPv4, []model.Change{bare}, nil},
		"primary, and the Node has an address":               {primary, []model.Change{full}, nil},
		"primary, and the Node has none":                     {primary, []model.Change{bare, other}, []string{noPort}},
		"primary, and the Node loses its address":            {primary, []model.Change{full, bare}, []string{noPort}},
		"primary and a CIDR, and the Node has none":          {primaryAnd("192.0.2.0/24"), []model.Change{bare}, nil},
		"primary and loopback":                               {primaryAnd("127.0.0.0/8"), []model.Change{full}, []string{loopback}},
		"primary and loopback, and the Node has none":        {primaryAnd("::1/128"), []model.Change{bare}, []string{loopback, noPort}},
		"NodeCIDR, and the Node has a podCIDR":               {nodeCIDR, []model.Change{full}, nil},
		"NodeCIDR, and the Node has none, until it gets one": {nodeCIDR, []model.Change{bare, full}, []string{noPods}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, logOf(t, test.config, test.changes)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheNodeIsEligibleAsItsObjectSpecifies(t *testing.T) {
	var nodeStatus status.Status
	f := newTestFeed(nil, slog.New(slog.DiscardHandler), &nodeStatus)
	const none, deleting = "there is no Node object of this name", "it is being deleted"
	for _, step := range []struct {
		title  string
		change model.Change
		reason string
	}{
		{"unknown", model.Change{}, none},
		{"exists", nodeChange(&model.Node{Name: "node-a"}), ""},
		{"another object changes", model.Change{}, ""},
		{"being deleted", nodeChange(&model.Node{Name: "node-a", IneligibleReason: deleting}), deleting},
		{"deleted", nodeChange(nil), none},
	} {
		f.deliver(t.Context(), convert.Update{Change: step.change})
		health := nodeStatus.Health(time.Now())
		if health.NodeEligible != (step.reason == "") || health.IneligibleReason != step.reason {
			t.Errorf("%s: eligible %v, reason %q, want reason %q", step.title, health.NodeEligible, health.IneligibleReason, step.reason)
		}
	}
}

func nodeChange(node *model.Node) model.Change {
	return model.Change{Nodes: map[string]*model.Node{"node-a": node}}
}

// logOf returns the log of a feed for changes that arrive one after the other, without the times.
func logOf(t *testing.T, config ruleset.Config, changes []model.Change) []string {
	t.Helper()
	var log strings.Builder
	f := newTestFeed(nil, slog.New(slog.NewTextHandler(&log, nil)), &status.Status{})
	f.config = config
	for _, change := range changes {
		f.deliver(t.Context(), convert.Update{Change: change})
	}
	var lines []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // after the time
		lines = append(lines, line)
	}
	return lines
}

func TestTheFirstChangeIsTheCompleteState(t *testing.T) {
	localAddr := netip.MustParseAddr("172.18.0.2")
	manifests := func(changes model.Change) func(*feed) {
		return func(f *feed) { f.deliver(t.Context(), convert.Update{Change: changes}) }
	}
	interfaces := func(addrs ...netip.Addr) func(*feed) {
		return func(f *feed) { f.barrier.deliverAddrs(t.Context(), addrs) }
	}
	node := nodeChange(&model.Node{Name: "node-a"})
	deletion := nodeChange(nil)
	both := node.Merge(model.Change{LocalAddrs: []netip.Addr{localAddr}})
	tests := map[string]struct {
		calls []func(*feed)
		want  []model.Change
	}{
		"manifests alone are not complete":  {[]func(*feed){manifests(node), manifests(deletion)}, nil},
		"interfaces alone are not complete": {[]func(*feed){interfaces(localAddr), interfaces()}, nil},
		"manifests first":                   {[]func(*feed){manifests(node), interfaces(localAddr)}, []model.Change{both}},
		"interfaces first":                  {[]func(*feed){interfaces(localAddr), manifests(node)}, []model.Change{both}},
		"only the newest manifests count":   {[]func(*feed){manifests(deletion), manifests(node), interfaces(localAddr)}, []model.Change{both}},
		"an empty cluster is a complete state": {
			[]func(*feed){manifests(model.Change{}), interfaces()}, []model.Change{{}},
		},
		"later changes come one by one, and only if there are any": {
			[]func(*feed){manifests(node), interfaces(localAddr), manifests(model.Change{}), manifests(deletion), interfaces(localAddr)},
			[]model.Change{both, deletion, {LocalAddrs: []netip.Addr{localAddr}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changes := make(chan model.Change, len(test.calls))
			feed := newTestFeed(changes, slog.New(slog.DiscardHandler), &status.Status{})
			for _, call := range test.calls {
				call(feed)
			}
			close(changes)
			var got []model.Change
			for change := range changes {
				got = append(got, change)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeliveriesEndWithTheContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	unread := make(chan model.Change)
	f := newTestFeed(unread, slog.New(slog.DiscardHandler), &status.Status{})
	delivered := make(chan struct{})
	go func() {
		f.deliver(ctx, convert.Update{})
		delivered <- struct{}{}
	}()
	go func() {
		f.barrier.deliverAddrs(ctx, []netip.Addr{})
		delivered <- struct{}{}
	}()
	stop()
	for range 2 {
		select {
		case <-delivered:
		case <-time.After(waitTimeout):
			t.Fatal("a delivery still blocks")
		}
	}
}

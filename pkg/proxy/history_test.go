package proxy_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	traffic "github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const self = "node-0"

var (
	podRanges    = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	bothFamilies = ruleset.Config{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{Prefixes: podRanges}}
)

// configurations have each setting that an administrator may choose at least once.
var configurations = []ruleset.Config{
	bothFamilies,
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{PodCIDRs: true}, NodePorts: model.NodePortAddresses{Primary: true}},
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{Interface: "cbr0"}, MasqueradeAll: true},
	{Families: model.Families, LocalTraffic: ruleset.LocalTraffic{InterfacePrefix: "cali"}, NodePorts: model.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/24"), netip.MustParsePrefix("::/0")}}},
	{Families: model.Families},
	{Families: []model.Family{model.IPv6}, LocalTraffic: ruleset.LocalTraffic{Prefixes: podRanges[1:]}, NodePorts: model.NodePortAddresses{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:172::/64")}}},
}

// story is a proxy that lives through a history, in a kernel that may be made to fail.
type story struct {
	config     ruleset.Config
	kernel     *memoryKernel
	seen       proxy.Kernel
	traffic    *traffic.Reader    // of the proxy that runs
	readers    []selection.Reader // beside that one
	running    *proxy.Proxy
	everything model.Change
	changes    *history
}

func newStory(seed uint64, kernel *memoryKernel, seen proxy.Kernel, readers ...selection.Reader) *story {
	s := &story{
		config: configurations[seed%uint64(len(configurations))], kernel: kernel, seen: seen, readers: readers,
		changes: newHistory(seed),
	}
	s.restart()
	return s
}

func (s *story) restart() {
	s.traffic = traffic.NewReader(0)
	s.running = proxy.New(self, s.config, s.seen, append([]selection.Reader{s.traffic}, s.readers...)...)
	s.running.Apply(s.everything)
}

// goOn makes a change, which the proxy has not synced yet.
func (s *story) goOn() {
	change := s.changes.change()
	s.everything = thenAs(self, s.everything, change)
	s.running.Apply(change)
	s.running.AllowReplanning()
}

// convergesLike checks that the kernel holds what a fresh start with the final state would write.
func (s *story) convergesLike(t testing.TB) {
	t.Helper()
	likeFreshStartOf(t, self, s.config, s.kernel, s.everything)
}

// TestAnyHistoryEndsLikeAFreshStart: after any sequence of changes, the kernel's state is that of a fresh start with
// the final state.
func TestAnyHistoryEndsLikeAFreshStart(t *testing.T) {
	for seed := range uint64(18) {
		kernel := &memoryKernel{}
		s := newStory(seed, kernel, kernel)
		for range 20 {
			s.goOn()
			mustSync(t, s.running)
			s.convergesLike(t)
		}
	}
}

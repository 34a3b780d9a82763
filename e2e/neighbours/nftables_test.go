package neighbours_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/documents"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// nftablesConf is a file like Debian's /etc/nftables.conf, which begins with a flush. It forwards only packets that the
// lines of manifests/coexistence.md accept.
const nftablesConf = `
flush ruleset
table inet filter {
	chain input { type filter hook input priority filter; policy accept; }
	chain forward {
		type filter hook forward priority filter; policy drop;
		%s
	}
	chain output { type filter hook output priority filter; policy accept; }
}
`

// TestNFTablesService covers systemd's service nftables, which loads a file at each reload and flushes everything when
// it stops.
func TestNFTablesService(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nftables.conf")
	lines := strings.Join(documents.Lines(t, "manifests/coexistence.md", "Other programs", "the chain forward"), "\n\t\t")
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, nftablesConf, lines), 0o600))
	start := func(m *machine) { m.inDebian().run("nft", "-f", file) }
	t.Run("a flush while no proxy runs removes its rules until one starts", func(t *testing.T) {
		t.Parallel()
		tb := newTestbed(t)
		tb.forEachNode((*machine).startProxy)
		first := tb.nodes[0]
		must.Succeed(t, first.proxy.Stop(wait.Timeout))
		tb.expectAllServed("the rules of a proxy that has ended")
		start(first)
		for _, to := range (spec{app: nearApp}).frontends(first) {
			if reply, err := tb.outside.Request("tcp", to, briefTimeout); err == nil {
				t.Errorf("%s replied at %s after the flush, want no reply", reply.Pod, to)
			}
		}
		first.startProxy()
		tb.expectAllServed("after the proxy was started again")
	})
	testNeighbour(t, neighbour{
		start:  start,
		update: start,
		restart: func(m *machine) {
			m.inDebian().run("nft", "flush", "ruleset")
			start(m)
		},
	})
}

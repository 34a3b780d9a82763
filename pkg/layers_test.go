package pkg_test

// rule is what some packages never import, be it ours or others'. A pattern is a folder, or with /... the folder and
// all below it.
type rule struct {
	who   []string
	but   []string // those of them that the rule does not bind
	never []string
	only  []string // exceptions of never
	// order has instead of who and never all groups of packages, such that none imports a later one. A folder belongs to
	// the longest pattern that covers it.
	order []string
	// pure packages are functions of values: see impure.
	pure bool
	why  string
}

// rules are all that the compiler does not see by itself. README.md shows them; `go test ./pkg -update` writes them
// there.
var rules = []rule{
	{
		order: []string{
			"pkg/...", "pkg/webhook/...",
			"pkg/proxy/ruleset", "pkg/proxy/source/...", "pkg/proxy/kernel/...", "pkg/proxy/config", "pkg/proxy/traffic/...",
			"pkg/proxy/serve/...", "pkg/proxy/report/...", "pkg/proxy/syncer", "pkg/proxy/analysis/...", "pkg/proxy/daemon",
			"pkg/testkit/...", "e2e/...", "cmd/...",
		},
		why: "a package imports only lower layers",
	},
	{
		who: []string{"pkg/proxy/..."}, never: []string{"pkg/webhook/..."},
		why: "two programs; what both need is outside of them",
	},
	{
		who: []string{"pkg/webhook/..."}, never: []string{"pkg/model", "pkg/selection/..."},
		why: "the webhook needs the settings that users write, `policy`, and no decision of the proxy",
	},
	{
		who: []string{
			"pkg/fair", "pkg/policy", "pkg/model", "pkg/selection/...", "pkg/proxy/ruleset",
			"pkg/proxy/analysis/explain", "pkg/proxy/analysis/forecast",
			"pkg/proxy/kernel/competing", "pkg/proxy/traffic/reachability", "pkg/proxy/source/convert", "pkg/proxy/source/nodes",
			"pkg/proxy/source/deadline", "pkg/webhook/rules", "pkg/sanitize",
		},
		never: []string{"pkg/...", "k8s.io/client-go", "k8s.io/klog", "sigs.k8s.io/controller-runtime", "github.com/prometheus"},
		only: []string{
			"pkg/fair", "pkg/policy", "pkg/model", "pkg/selection/...", "pkg/proxy/ruleset",
			"pkg/proxy/analysis/explain", "pkg/proxy/source/convert",
			"pkg/proxy/source/nodes", "pkg/proxy/source/deadline", "pkg/manifest", "pkg/sanitize", "pkg/topologyslice",
			"pkg/servicedemand",
		},
		pure: true,
		why:  "a decision depends only on its input",
	},
	{
		who:   []string{"pkg/proxy/syncer"},
		never: []string{"pkg/..."}, only: []string{"pkg/fair", "pkg/model", "pkg/selection", "pkg/proxy/ruleset"},
		why: "it declares an interface to the kernel, so that tests can use one in memory",
	},
	{
		who: []string{"..."},
		but: []string{"pkg/proxy/kernel/...", "pkg/testkit/...", "e2e/fabric"},
		never: []string{
			"github.com/google/nftables", "github.com/mdlayher/netlink", "github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		},
		why: "all netlink is in `kernel`",
	},
	{
		who:   []string{"..."},
		but:   []string{"pkg/testkit/...", "e2e/documents", "e2e/fabric/fabrictest", "e2e/site", "e2e/webhook/release"},
		never: []string{"pkg/testkit/..."}, only: []string{"pkg/testkit/port"},
		why: "only tests import it; no program contains it",
	},
	{
		who: []string{"e2e/lab/...", "e2e/probe/..."}, never: []string{"pkg/..."}, only: []string{"pkg/testkit/port"},
		why: "they build a cluster around Vicinity, and do not depend on its internals",
	},
}

// impure are the packages of the standard library that a pure package does not import, and why.
var impure = map[string]string{
	"context":   "a function of values ends by itself; no caller needs to cancel it",
	"log":       "a decision returns its reason as a value, and others print it",
	"log/slog":  "a decision returns its reason as a value, and others print it",
	"math/rand": "the same input gives the same output, so that any outcome can be explained afterwards",
	"net":       "sockets and look-ups are the world's; addresses are in net/netip",
	"net/http":  "sockets and look-ups are the world's",
	"os":        "files and environment are handed in as values",
	"os/exec":   "programs belong to those who touch the world",
	"syscall":   "the kernel is reached through pkg/proxy/kernel alone",

	"math/rand/v2": "the same input gives the same output, so that any outcome can be explained afterwards",
}

// clocks are the functions of package time that read the clock. In a pure package time is an argument.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true,
}

package pkg_test

// rule forbids some packages to import others, of this module or of other modules. A pattern is a folder, or with /...
// the folder and all below it.
type rule struct {
	who   []string
	but   []string // those of them that are exempt
	never []string
	only  []string // exceptions of forbidden
	// order replaces packages and forbidden: it lists all layers, and no package may import one of a later layer. A folder belongs
	// to the longest pattern that covers it.
	order []string
	// pure is set for packages of functions of values: see impure.
	pure bool
	why  string
}

// rules are all import rules that the compiler does not enforce. README.md has them as a table, which
// `go test ./pkg -update` writes.
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
		why: "they are two programs; shared packages are outside of both",
	},
	{
		who: []string{"pkg/webhook/..."}, never: []string{"pkg/model", "pkg/selection/..."},
		why: "the webhook needs only the settings that users write (`policy`), and no decisions of the proxy",
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
	"context":   "a function of values returns without waiting; no caller needs to cancel it",
	"log":       "a decision returns its reason as a value, and others print it",
	"log/slog":  "a decision returns its reason as a value, and others print it",
	"math/rand": "the same input gives the same output, so that any outcome can be explained afterwards",
	"net":       "a pure package uses no sockets or lookups; addresses are in net/netip",
	"net/http":  "a pure package uses no sockets or lookups",
	"os":        "files and the environment are passed in as values",
	"os/exec":   "a pure package runs no programs",
	"syscall":   "only pkg/proxy/kernel uses the kernel",

	"math/rand/v2": "the same input gives the same output, so that any outcome can be explained afterwards",
}

// clocks are the functions of package time that read the clock. In a pure package time is an argument.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true,
}

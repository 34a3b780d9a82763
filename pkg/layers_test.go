package pkg_test

// importRule forbids some packages to import others, of this module or of other modules. A pattern is a folder, or with
// /... the folder and all below it.
type importRule struct {
	packages  []string
	exempt    []string // those of them that are exempt
	forbidden []string
	allowed   []string // exceptions of forbidden
	// order replaces packages and forbidden: it lists all layers, and no package may import one of a later layer. A folder
	// belongs to the longest pattern that covers it.
	order []string
	// pure is set for packages whose results depend only on arguments: see impure.
	pure   bool
	reason string
}

// rules are all import rules that the compiler does not enforce. README.md has them as a table, which
// `go test ./pkg -update` writes.
var rules = []importRule{
	{
		order: []string{
			"pkg/...", "pkg/webhook/...",
			"pkg/proxy/ruleset", "pkg/proxy/source/...", "pkg/proxy/kernel/...", "pkg/proxy/config", "pkg/proxy/traffic/...",
			"pkg/proxy/serve/...", "pkg/proxy/report/...", "pkg/proxy/syncer", "pkg/proxy/analysis/...", "pkg/proxy/daemon",
			"pkg/testkit/...", "e2e/...", "cmd/...",
		},
		reason: "a package imports only lower layers",
	},
	{
		packages: []string{"pkg/proxy/..."}, forbidden: []string{"pkg/webhook/..."},
		reason: "they are two programs; shared packages are outside of both",
	},
	{
		packages: []string{"pkg/webhook/..."}, exempt: []string{"pkg/webhook/demand/overload"},
		forbidden: []string{"pkg/model", "pkg/selection/..."},
		reason: "the webhook needs only the settings that users write (`policy`), and no decisions of the proxy; `overload` plans as " +
			"proxies do, to compare the result with measured demand",
	},
	{
		packages: []string{
			"pkg/fair", "pkg/policy", "pkg/model", "pkg/selection/...", "pkg/proxy/ruleset",
			"pkg/proxy/analysis/explain", "pkg/proxy/analysis/forecast",
			"pkg/proxy/kernel/competing", "pkg/proxy/traffic/reachability", "pkg/proxy/source/convert", "pkg/proxy/source/nodes",
			"pkg/proxy/source/deadline", "pkg/webhook/rules", "pkg/sanitize",
		},
		forbidden: []string{"pkg/...", "k8s.io/client-go", "k8s.io/klog", "sigs.k8s.io/controller-runtime", "github.com/prometheus"},
		allowed: []string{
			"pkg/fair", "pkg/policy", "pkg/model", "pkg/selection/...", "pkg/proxy/ruleset",
			"pkg/proxy/analysis/explain", "pkg/proxy/source/convert",
			"pkg/proxy/source/nodes", "pkg/proxy/source/deadline", "pkg/manifest", "pkg/sanitize", "pkg/apis/...",
		},
		pure:   true,
		reason: "a decision depends only on its input",
	},
	{
		packages:  []string{"pkg/proxy/syncer"},
		forbidden: []string{"pkg/..."}, allowed: []string{"pkg/fair", "pkg/model", "pkg/selection", "pkg/proxy/ruleset"},
		reason: "it declares an interface to the kernel, so that tests can use one in memory",
	},
	{
		packages: []string{"..."},
		exempt:   []string{"pkg/proxy/kernel/...", "pkg/testkit/...", "e2e/fabric"},
		forbidden: []string{
			"github.com/google/nftables", "github.com/mdlayher/netlink", "github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		},
		reason: "all netlink is in `kernel`",
	},
	{
		packages:  []string{"..."},
		exempt:    []string{"pkg/testkit/...", "e2e/documents", "e2e/fabric/fabrictest", "e2e/site", "e2e/webhook/release"},
		forbidden: []string{"pkg/testkit/..."}, allowed: []string{"pkg/testkit/port"},
		reason: "only tests import it; no program contains it",
	},
	{
		packages: []string{"e2e/lab/...", "e2e/probe/..."}, forbidden: []string{"pkg/..."}, allowed: []string{"pkg/testkit/port"},
		reason: "they build a cluster around Vicinity, and do not depend on its internals",
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

package pkg_test

// layer is what the packages of one folder may import besides the standard library. Everything not listed is forbidden.
type layer struct {
	folder string // a package, or with /... every package below
	ours   []string
	others []string
	// pure packages are functions of values: see impure.
	pure bool
	why  string
}

// layers is the house, from the words a user writes to the program that runs. README.md draws it; .golangci.yml says the same
// to editors. A package without a layer fails the test: deciding where it stands comes before writing it.
var layers = []layer{
	{
		folder: "pkg/policy",
		others: []string{"k8s.io/apimachinery/pkg/api/validate/content"},
		pure:   true,
		why:    "whoever checks the same words must not carry the proxy with it; only Kubernetes' own syntax rules are shared",
	},
	{
		folder: "pkg/admission",
		ours:   []string{"pkg/policy"},
		others: []string{"k8s.io/apimachinery/pkg/util/validation/field", "k8s.io/apimachinery/pkg/util/version"},
		pure:   true,
		why:    "a webhook, a file and a test must judge alike, so a judgement depends on nothing but what it is given",
	},
	{
		folder: "pkg/model",
		ours:   []string{"pkg/policy"},
		pure:   true,
		why:    "plain values stay plain: neither an API version nor a kernel object shows through them",
	},
	{
		folder: "pkg/selection",
		ours:   []string{"pkg/model", "pkg/policy"},
		pure:   true,
		why:    "which endpoints are chosen depends on the cluster alone, never on how the choice is written down",
	},
	{
		folder: "pkg/ruleset",
		ours:   []string{"pkg/model", "pkg/selection"},
		pure:   true,
		why:    "what the tables should hold is decided and tested without a kernel",
	},
	{
		folder: "pkg/explain",
		ours:   []string{"pkg/model", "pkg/policy", "pkg/selection"},
		others: []string{"sigs.k8s.io/yaml"},
		pure:   true,
		why:    "an explanation shows decisions that others made; it takes none and looks nothing up",
	},
	{
		folder: "pkg/manifest",
		others: []string{"go.yaml.in/yaml/v2", "go.yaml.in/yaml/v3", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml"},
		why:    "it reads objects of files, whatever they are objects of",
	},
	{
		folder: "pkg/source",
		ours:   []string{"pkg/manifest", "pkg/model", "pkg/policy"},
		others: []string{
			"github.com/fsnotify/fsnotify", "go.yaml.in/yaml/v2", "go4.org/netipx", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils",
			"sigs.k8s.io/json", "sigs.k8s.io/yaml",
		},
		why: "a source reports what the cluster says, whatever is made of it",
	},
	{
		folder: "pkg/apiserver",
		ours:   []string{"pkg/model", "pkg/policy", "pkg/source"},
		others: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2"},
		why:    "it is pkg/source for a cluster, and the only one that watches an API server",
	},
	{
		folder: "pkg/events",
		ours:   []string{"pkg/model"},
		others: []string{"golang.org/x/time/rate", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
		why:    "it tells users what others found out",
	},
	{
		folder: "pkg/config",
		ours:   []string{"pkg/filewatch", "pkg/model", "pkg/policy", "pkg/ruleset", "pkg/sysctl"},
		others: []string{
			"go.yaml.in/yaml/v2", "k8s.io/apimachinery", "k8s.io/component-base/logs/api/v1",
			"k8s.io/kube-proxy/config/v1alpha1", "sigs.k8s.io/json", "sigs.k8s.io/yaml",
		},
		why: "it turns kube-proxy's words into settings, and others act on them",
	},
	{
		folder: "pkg/filewatch",
		others: []string{"github.com/fsnotify/fsnotify"},
		why:    "it notices that a file says something else, and whoever has read it knows what that means",
	},
	{
		folder: "pkg/admissionconfig",
		ours:   []string{"pkg/admission", "pkg/filewatch", "pkg/policy"},
		others: []string{"go.yaml.in/yaml/v3", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml"},
		why:    "it reads what an administrator wants, and others act on it",
	},
	{
		folder: "pkg/webhook",
		ours:   []string{"pkg/admission"},
		others: []string{
			"golang.org/x/net/netutil", "golang.org/x/sync/semaphore", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime",
			"sigs.k8s.io/json",
		},
		why: "it brings reviews to whoever decides them, and decides nothing; whoever observes it does so through an interface that it declares",
	},
	{
		folder: "pkg/webhookmetrics",
		ours:   []string{"pkg/admission"},
		others: []string{"github.com/prometheus/client_golang"},
		why:    "metrics are told what happened and ask nobody",
	},
	{
		folder: "pkg/certs",
		others: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime/pkg/certwatcher"},
		why:    "whose certificates they are does not matter to how they are made, kept and renewed",
	},
	{
		folder: "pkg/metadata",
		ours:   []string{"pkg/admission", "pkg/policy"},
		others: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		why:    "it follows labels and annotations, and nobody else asks an API server for them",
	},
	{
		folder: "pkg/sysctl",
		why:    "it compares and writes values, whoever wants them",
	},
	{
		folder: "pkg/zpages",
		why:    "it shows what it is given",
	},
	{
		folder: "pkg/nft",
		ours:   []string{"pkg/model", "pkg/ruleset"},
		others: []string{"github.com/google/nftables", "github.com/mdlayher/netlink", "golang.org/x/net/bpf", "golang.org/x/sys"},
		why:    "the kernel is told what to hold and never why",
	},
	{
		folder: "pkg/conntrack",
		ours:   []string{"pkg/model", "pkg/selection"},
		others: []string{"github.com/vishvananda/netlink", "golang.org/x/sys"},
		why:    "which flows may go on is decided elsewhere; here they are found and ended",
	},
	{
		folder: "pkg/interfaces",
		others: []string{"github.com/vishvananda/netlink", "golang.org/x/sys"},
		why:    "it tells which addresses there are, and not what they are good for",
	},
	{
		folder: "pkg/healthcheck",
		ours:   []string{"pkg/httpserve", "pkg/model", "pkg/selection"},
		others: []string{"golang.org/x/sys"},
		why:    "it tells load balancers what was decided",
	},
	{
		folder: "pkg/health",
		why:    "health is told what happened, so that its verdict can be tested without anything happening",
	},
	{
		folder: "pkg/metrics",
		others: []string{"github.com/prometheus/client_golang", "k8s.io/client-go/tools/metrics"},
		why:    "metrics are told what happened and ask nobody",
	},
	{
		folder: "pkg/httpserve",
		why:    "it serves any handler",
	},
	{
		folder: "pkg/proxy",
		ours:   []string{"pkg/model", "pkg/ruleset", "pkg/selection"},
		why:    "the proxy reaches the kernel only through the interface that it declares, so that the kernel in memory can stand in for it",
	},
	{
		folder: "pkg/cli",
		others: []string{"github.com/spf13/cobra", "golang.org/x/sync/errgroup"},
		why:    "what all programs do at their start, whatever they are for",
	},
	{
		folder: "pkg/netnstest",
		others: []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns"},
		why:    "every package's tests may use it, so it depends on none of them",
	},
	{
		folder: "pkg/admissiontest",
		ours:   []string{"pkg/admission"},
		others: []string{"k8s.io/apimachinery/pkg/util/version", "sigs.k8s.io/yaml"},
		why:    "one corpus of cases drives the rules, the webhook and the policies, so it knows only what they have in common",
	},
	{
		folder: "pkg/monitoringtest",
		others: []string{"github.com/prometheus/client_golang", "sigs.k8s.io/yaml"},
		why:    "it compares files with whatever metrics it is given, of any program",
	},
	{
		folder: "cmd/webhook",
		ours:   []string{"pkg/..."},
		others: []string{
			"github.com/go-logr/logr", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/klog/v2", "sigs.k8s.io/controller-runtime",
		},
		why: "a command puts the parts together; controller-runtime's manager runs them",
	},
	{
		folder: "cmd/...",
		ours:   []string{"pkg/..."},
		others: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
		why:    "a command puts the parts together; what needs another library is a part",
	},
	{
		folder: "e2e/lab/...",
		ours:   []string{"e2e/fabric", "e2e/lab/..."},
		others: []string{
			"github.com/google/go-containerregistry", "github.com/spf13/cobra", "golang.org/x/sys", "k8s.io/api", "k8s.io/apimachinery",
			"k8s.io/client-go", "sigs.k8s.io/yaml",
		},
		why: "it builds a cluster around Vicinity, and knows nothing of its inside",
	},
	{
		folder: "e2e/probe/...",
		ours:   []string{"e2e/probe/..."},
		others: []string{"github.com/mdlayher/netlink", "golang.org/x/sys"},
		why:    "it runs in pods, beside Vicinity",
	},
	{
		folder: "e2e/...",
		ours:   []string{"pkg/...", "e2e/..."},
		others: []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/net", "golang.org/x/sys"},
		why:    "it builds networks and looks at Vicinity from outside; only pkg/nft speaks nftables",
	},
}

// testOnly is what no program contains, whoever may import it in a test.
var testOnly = []string{"pkg/netnstest", "pkg/admissiontest", "pkg/monitoringtest"}

// impure are the packages of the standard library that a pure package may not import, and why.
var impure = map[string]string{
	"context":   "a function of values ends by itself; nobody needs to cancel it",
	"log":       "a decision returns its reason as a value, and others print it",
	"log/slog":  "a decision returns its reason as a value, and others print it",
	"math/rand": "the same input gives the same output, so that any outcome can be explained afterwards",
	"net":       "sockets and look-ups are the world's; addresses are in net/netip",
	"net/http":  "sockets and look-ups are the world's",
	"os":        "files and environment are handed in as values",
	"os/exec":   "programs belong to those who touch the world",
	"syscall":   "the kernel is reached through pkg/nft alone",

	"math/rand/v2": "the same input gives the same output, so that any outcome can be explained afterwards",
}

// clocks are the functions of package time that read the clock. In a pure package time is an argument.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true,
}

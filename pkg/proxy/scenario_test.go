package proxy_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vicinity-proxy/vicinity/pkg/explain"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

var update = flag.Bool("update", false, "write what the scenarios print into their files")

// The scenarios in testdata are stories: manifests in, tables and explanations out. Their commands, besides those of
// testscript (cp, rm, cmp, stdout, …):
//
//	node NAME       sees the cluster from this node from now on, as a new proxy with the kernel as it is
//	restart         starts a new proxy with the kernel as it is
//	sync            reads the folder manifests and syncs; prints what was refused, and what was written
//	tables [ip]     prints the tables, or only the one of IPv4
//	explain [NAME]  prints the explanation of one Service, or of all
//
// After each sync the tables must be those of a fresh start.
func TestScenariosInMemory(t *testing.T) {
	runScenarios(t, func(testing.TB) scenarioKernel { return &memoryKernel{} })
}

// TestScenariosInTheKernel runs the same stories in the kernel, where nft must list the same tables.
func TestScenariosInTheKernel(t *testing.T) {
	runScenarios(t, func(t testing.TB) scenarioKernel { return newRealKernel(t) })
}

// scenarioKernel is a kernel whose state can be compared.
type scenarioKernel interface {
	proxy.Kernel
	inMemory() *memoryKernel
	// agree checks what can be checked beyond the state in memory.
	agree(t testing.TB)
}

func (k *memoryKernel) inMemory() *memoryKernel { return k }
func (k *memoryKernel) agree(testing.TB)        {}
func (k *realKernel) inMemory() *memoryKernel   { return &k.memory }

type scenario struct {
	t          testing.TB
	kernel     scenarioKernel
	node       string
	proxy      *proxy.Proxy
	manifests  *source.Manifests
	everything model.Change
}

type scenarioKey struct{}

func runScenarios(t *testing.T, newKernel func(testing.TB) scenarioKernel) {
	scripts, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scenarios found: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/scenarios",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				tb = t
			}
			s := &scenario{t: tb, kernel: newKernel(tb), node: self}
			s.manifests = source.NewManifests(filepath.Join(env.WorkDir, "manifests"), slog.New(slog.DiscardHandler))
			s.restart()
			env.Values[scenarioKey{}] = s
			return os.MkdirAll(filepath.Join(env.WorkDir, "manifests"), 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node":    command((*scenario).cmdNode),
			"restart": command((*scenario).cmdRestart),
			"sync":    command((*scenario).cmdSync),
			"tables":  command((*scenario).cmdTables),
			"explain": command((*scenario).cmdExplain),
		},
	})
}

func command(run func(*scenario, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		run(ts.Value(scenarioKey{}).(*scenario), ts, args)
	}
}

func (s *scenario) restart() {
	s.proxy = proxy.New(s.node, bothFamilies, s.kernel)
	s.proxy.Apply(s.everything)
}

func (s *scenario) cmdNode(ts *testscript.TestScript, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: node NAME")
	}
	s.node = args[0]
	s.restart()
}

func (s *scenario) cmdRestart(*testscript.TestScript, []string) { s.restart() }

func (s *scenario) cmdSync(ts *testscript.TestScript, _ []string) {
	loaded, err := s.manifests.Load()
	ts.Check(err)
	s.everything = s.everything.Then(loaded.Change)
	s.proxy.Apply(loaded.Change)
	report, err := s.proxy.Sync(s.t.Context())
	ts.Check(err)
	ts.Check(report.Unswept)
	for _, problem := range loaded.Problems {
		fmt.Fprintf(ts.Stdout(), "refused: %s\n", problem)
	}
	fmt.Fprintf(ts.Stdout(), "synced %d of %d Services: %d elements added, %d deleted\n", report.Services, report.Total,
		report.Added[model.IPv4]+report.Added[model.IPv6], report.Deleted[model.IPv4]+report.Deleted[model.IPv6])
	likeFreshStartOn(s.t, s.node, s.kernel.inMemory(), s.everything)
	s.kernel.agree(s.t)
}

func (s *scenario) cmdTables(ts *testscript.TestScript, args []string) {
	text := s.kernel.inMemory().text(s.t)
	if len(args) == 1 {
		text, _, _ = strings.Cut(text, "\ntable ip6 ")
	}
	_, err := ts.Stdout().Write([]byte(text))
	ts.Check(err)
}

func (s *scenario) cmdExplain(ts *testscript.TestScript, args []string) {
	cluster := model.NewCluster(s.node)
	cluster.Apply(s.everything)
	names := cluster.ServiceNames()
	if len(args) == 1 {
		names = []model.ObjectName{{Namespace: "default", Name: args[0]}}
	}
	var ports []explain.Port
	for _, name := range names {
		for _, decision := range selection.Decide(cluster, name, model.Families) {
			exclusions := decision.Selection.Exclusions(decision.Endpoints, selection.Viewpoint{Node: cluster.Self(), Labels: cluster.NodeLabels})
			ports = append(ports, explain.Build(s.node, decision, exclusions))
		}
	}
	ts.Check(explain.Text(ts.Stdout(), ports))
}

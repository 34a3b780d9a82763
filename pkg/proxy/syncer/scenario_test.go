package syncer_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// The scenarios in testdata have manifests as input, tables and explanations as output. Their commands, in addition to
// those of testscript (cp, rm, cmp, stdout, …):
//
//	node NAME           uses the view of this node, as a new proxy with the kernel as it is
//	detector HOW [ARG]  recognizes pods in another way (clustercidr PREFIX…, nodecidr, bridge NAME, prefix NAME, none),
//	                    as a new proxy
//	nodeports WHERE     serves node ports on these addresses (all, primary, PREFIX…), as a new proxy
//	masquerade-all      masquerades every connection to a ClusterIP, as a new proxy
//	restart             starts a new proxy with the kernel as it is
//	addresses ADDR…     sets the addresses of this machine's interfaces
//	sync                reads the directory manifests and syncs; prints rejected and skipped objects, the written
//	                    elements, frontends that several Services claim, and health checks if they changed
//	tables [ip]         prints the tables, or only the one of IPv4
//	elements [SET…]     prints the elements of these sets and maps, a line for each; without a name, of all of them
//	chain NAME…         prints these chains
//	explain [NAME]      prints the explanation of one Service, or of all
//
// After each sync the tables must be those of a fresh start.
func TestScenariosInMemory(t *testing.T) {
	runScenarios(t, func(testing.TB) scenarioKernel { return &memoryKernel{} })
}

// TestScenariosInTheKernel runs the same scenarios in the kernel, where nft must list the same tables.
func TestScenariosInTheKernel(t *testing.T) {
	runScenarios(t, func(t testing.TB) scenarioKernel { return newRealKernel(t) })
}

// scenarioKernel is a kernel whose state can be compared.
type scenarioKernel interface {
	syncer.Kernel
	inMemory() *memoryKernel
	// expectSameListing checks that nft lists the same tables for the kernel as for the model in memory. Without a real
	// kernel it does nothing.
	expectSameListing(t testing.TB)
}

func (k *memoryKernel) inMemory() *memoryKernel      { return k }
func (k *memoryKernel) expectSameListing(testing.TB) {}
func (k *realKernel) inMemory() *memoryKernel        { return &k.model }

type scenario struct {
	t          testing.TB
	kernel     scenarioKernel
	checks     *healthChecks
	node       string
	config     ruleset.Config
	proxy      *syncer.Proxy
	manifests  *manifests.Manifests
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
		UpdateScripts: *golden.Update,
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				tb = t
			}
			s := &scenario{t: tb, kernel: newKernel(tb), node: self, config: bothFamilies}
			s.manifests = manifests.NewManifests(filepath.Join(env.WorkDir, "manifests"), convert.View{}, slog.New(slog.DiscardHandler))
			s.restart()
			env.Values[scenarioKey{}] = s
			return os.MkdirAll(filepath.Join(env.WorkDir, "manifests"), 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node":           command((*scenario).cmdNode),
			"detector":       command((*scenario).cmdDetector),
			"nodeports":      command((*scenario).cmdNodePorts),
			"masquerade-all": command((*scenario).cmdMasqueradeAll),
			"restart":        command((*scenario).cmdRestart),
			"addresses":      command((*scenario).cmdAddresses),
			"sync":           command((*scenario).cmdSync),
			"tables":         command((*scenario).cmdTables),
			"elements":       command((*scenario).cmdElements),
			"chain":          command((*scenario).cmdChain),
			"explain":        command((*scenario).cmdExplain),
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
	s.checks = &healthChecks{}
	s.proxy = syncer.New(s.node, s.config, s.kernel, s.checks)
	s.proxy.Apply(s.everything)
}

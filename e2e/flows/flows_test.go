// Package flows sends the packets of kube-proxy's own packet tables, as real connections through the tables that
// Vicinity writes for the same Services. The cases are not Vicinity's own: they are the input of runPacketFlowTests in
// proxier_test.go of kube-proxy's nftables mode (Kubernetes 1.37.2), which evaluates them on a list of rules. It needs
// root.
//
// A file of testdata is one network: objects, and the flows that they should carry. Several tables of kube-proxy share
// a file if they have the same objects under other settings, or the objects of a later moment. A flow is
//
//	FROM PROTOCOL TO OUTCOME # description
//
// The outcome is a list of endpoints that respond, with "masquerade" if they see the node in place of the client;
// "reject"; "drop"; or "untouched", if the packet arrives at its original destination. Vicinity rejects TCP by a reset,
// kube-proxy by ICMP: clients get the same error.
//
// To add cases, add a file to testdata.
package flows_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
)

// flow is a row of a packet table.
type flow struct {
	title   string
	from    netip.Addr
	network string
	to      netip.AddrPort
	outcome string // "reject", "drop", "untouched"; empty if endpoints respond
	// endpoints are all endpoints that respond.
	endpoints  []netip.AddrPort
	masquerade bool
}

// section is a part of a file: objects that exist from then on, or flows under settings.
type section struct {
	kind     string
	settings []string
	text     []byte
	flows    []flow
}

func TestKubeProxysPacketTables(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the tables: %v, %v", files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			runSections(t, readSections(t, archive))
		})
	}
}

// runSections sends all flows of a file.
func runSections(t *testing.T, sections []section) {
	t.Helper()
	dir := t.TempDir()
	manifests := manifests.NewManifests(dir, convert.View{Node: nodeName}, slog.New(slog.DiscardHandler))
	var network *network
	for number, current := range sections {
		if current.kind == "objects" {
			change := load(t, manifests, dir, current.text)
			if network == nil {
				network = newNetwork(t, flowsOf(sections), change)
			}
			network.apply(t, change)
			continue
		}
		network.configure(t, current.settings)
		t.Run(fmt.Sprintf("%d %s", number, strings.Join(current.settings, " ")), func(t *testing.T) {
			for _, f := range current.flows {
				if err := network.check(f); err != nil {
					t.Errorf("%s (%s over %s to %s): %v", f.title, f.from, f.network, f.to, err)
				}
			}
		})
	}
}

// load replaces the objects in the folder. They must all be valid.
func load(t *testing.T, manifests *manifests.Manifests, dir string, objects []byte) model.Change {
	t.Helper()
	text := bytes.Join([][]byte{[]byte(commonObjects), objects}, []byte("---\n"))
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	update, err := manifests.Load()
	if err != nil || slices.ContainsFunc(update.NewProblems, model.Finding.IsRejection) {
		t.Fatalf("load the objects: %v, %v", err, update.NewProblems)
	}
	return update.Change
}

// commonObjects are the objects that kube-proxy's tables have in common.
const commonObjects = `apiVersion: v1
kind: Node
metadata: {name: test-node}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: "2001:db8::1"}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [172.30.0.0/16, "fd00:10:96::/112"]}
`

// configOf returns a configuration with the defaults of kube-proxy's tables, changed by the given settings.
func configOf(t *testing.T, settings []string) ruleset.Config {
	t.Helper()
	config := ruleset.Config{
		Families:     model.Families,
		LocalTraffic: ruleset.LocalTraffic{Prefixes: podPrefixes},
		NodePorts:    model.NodePortAddresses{Primary: true},
	}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		switch {
		case setting == "detector=none":
			config.LocalTraffic = ruleset.LocalTraffic{}
		case setting == "masqueradeAll":
			config.MasqueradeAll = true
		case name == "nodePortAddresses":
			config.NodePorts.Primary = false
			config.NodePorts.Prefixes = append(config.NodePorts.Prefixes, parse(t, netip.ParsePrefix, value))
		default:
			t.Fatalf("unknown setting %q", setting)
		}
	}
	return config
}

func readSections(t *testing.T, archive *txtar.Archive) []section {
	t.Helper()
	var sections []section
	for _, file := range archive.Files {
		words := strings.Fields(file.Name)
		s := section{kind: words[0], settings: words[1:], text: file.Data}
		switch s.kind {
		case "objects":
		case "flows":
			for line := range strings.Lines(string(file.Data)) {
				s.flows = append(s.flows, readFlow(t, line))
			}
		default:
			t.Fatalf("unknown section %q", file.Name)
		}
		sections = append(sections, s)
	}
	return sections
}

func readFlow(t *testing.T, line string) flow {
	t.Helper()
	fields, title, _ := strings.Cut(strings.TrimSpace(line), " # ")
	words := strings.Fields(fields)
	if len(words) < 4 || title == "" {
		t.Fatalf("invalid flow: %q", line)
	}
	f := flow{title: title, from: parse(t, netip.ParseAddr, words[0]), network: words[1], to: parse(t, netip.ParseAddrPort, words[2])}
	switch rest := words[3:]; {
	case len(rest) == 1 && slices.Contains([]string{"reject", "drop", "untouched"}, rest[0]):
		f.outcome = rest[0]
	case len(rest) == 1 || len(rest) == 2 && rest[1] == "masquerade":
		for endpoint := range strings.SplitSeq(rest[0], ",") {
			f.endpoints = append(f.endpoints, parse(t, netip.ParseAddrPort, endpoint))
		}
		f.masquerade = len(rest) == 2
	default:
		t.Fatalf("invalid outcome: %q", line)
	}
	return f
}

func parse[T any](t *testing.T, parser func(string) (T, error), text string) T {
	t.Helper()
	value, err := parser(text)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func flowsOf(sections []section) []flow {
	var all []flow
	for _, s := range sections {
		all = append(all, s.flows...)
	}
	return all
}

const (
	// dropTimeout is long enough for a response to arrive, if there is one.
	dropTimeout = 250 * time.Millisecond
	// If several endpoints respond, maxConnections reach all of them; one of three is missed once in 10^17 runs.
	// minConnections are enough to detect an endpoint that should not respond, or a port that masquerading did not
	// change.
	minConnections = 8
	maxConnections = 100
)

// check sends a flow repeatedly and returns the difference from its table.
func (n *network) check(f flow) error {
	client := n.machines[f.from]
	switch f.outcome {
	case "reject":
		return failsWith(syscall.ECONNREFUSED, client, f, fabric.Timeout)
	case "drop":
		return failsWith(os.ErrDeadlineExceeded, client, f, dropTimeout)
	case "untouched":
		f.endpoints = []netip.AddrPort{f.to}
	}
	seen, unchanged := map[netip.AddrPort]bool{}, 0
	number := 0
	for number < minConnections || number < maxConnections && len(seen) < len(f.endpoints) {
		number++
		reply, err := client.RequestFrom(f.network, f.from, f.to, fabric.Timeout)
		if err == nil {
			err = n.checkReply(f, reply)
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", number, err)
		}
		seen[reply.Server] = true
		if reply.Client == reply.Local {
			unchanged++
		}
	}
	if len(seen) < len(f.endpoints) {
		return fmt.Errorf("only %[2]v responded, want responses of %[1]v", f.endpoints, slices.Collect(maps.Keys(seen)))
	}
	// Packets of the node have its address in any case, but masquerading picks another port.
	if f.masquerade && unchanged == number || !f.masquerade && unchanged < number {
		return fmt.Errorf("%d of %d connections kept address and port, want masquerading: %t", unchanged, number, f.masquerade)
	}
	return nil
}

func (n *network) checkReply(f flow, reply fabric.Reply) error {
	if !slices.Contains(f.endpoints, reply.Server) {
		return fmt.Errorf("%s responded, want %v", reply.Server, f.endpoints)
	}
	isNode := slices.Contains(n.local, reply.Client.Addr())
	if f.masquerade && !isNode || !f.masquerade && reply.Client.Addr() != f.from {
		return fmt.Errorf("%s saw %s, want masquerading: %t", reply.Server, reply.Client, f.masquerade)
	}
	return nil
}

// failsWith sends a flow once and expects the given error.
func failsWith(want error, client *fabric.Namespace, f flow, timeout time.Duration) error {
	switch reply, err := client.RequestFrom(f.network, f.from, f.to, timeout); {
	case err == nil:
		return fmt.Errorf("%s responded, want %s: %w", reply.Server, f.outcome, want)
	case !errors.Is(err, want):
		return fmt.Errorf("%w, want %s: %w", err, f.outcome, want)
	}
	return nil
}

package endure_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// apiSetup is a site whose proxy watches a real API server, which runs outside and is reached through a wire. Clients 0
// and 1 dial; client 2 is a network namespace in which tables are only compared.
type apiSetup struct {
	*objects
	api        *site.Site
	wire       *wire
	kubeconfig string // of the proxy

	// running is locked for writing while the proxy does not run.
	running        sync.RWMutex
	livenessChecks atomic.Int64 // the number of successful liveness checks
}

func newAPISetup(t *testing.T) *apiSetup {
	t.Helper()
	s := &apiSetup{objects: &objects{setup: newSetup(t), random: seeded(t), exists: map[string]bool{}, rack: "rack-2"}}
	// These ranges contain the addresses of the apps.
	flags := []string{"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112"}
	s.api = site.New(t, site.Config{Namespace: s.outside, Flags: flags})
	s.client = s.api.Admin
	target, err := url.Parse(s.api.URL())
	must.Succeed(t, err)
	s.wire = newWire(t, s.node.Namespace, target.Host)
	config, err := s.api.ClientConfig("proxy", "system:masters")
	must.Succeed(t, err)
	config.Host = "https://" + wireAddress
	s.kubeconfig = site.Kubeconfig(t, config)
	s.populate()
	return s
}

// populate creates the objects that exist before any storm.
func (s *apiSetup) populate() {
	s.t.Helper()
	s.createNode(s.node.Name, s.rack)
	s.createNode("node-2", "rack-2")
	s.createNode("node-3", "rack-3")
	s.create(web, "a", "b")
	s.create(sticky, "a", "b")
	s.create(keyed, "c", "d")
	s.annotate(keyed, rackLabel)
	s.replaceService()
}

// sourceFlagsOf returns the arguments for the source of the tables.
func (s *apiSetup) sourceFlagsOf(kubeconfig string) []string {
	return []string{
		"--node", s.node.Name, "--kubeconfig", kubeconfig,
		"--cluster-cidr", fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String(),
	}
}

// startProxy starts the proxy without waiting.
func (s *apiSetup) startProxy(args ...string) *daemon {
	s.t.Helper()
	began := time.Now()
	command := exec.Command(s.program, append([]string{"run"}, append(s.sourceFlagsOf(s.kubeconfig), args...)...)...)
	return &daemon{site.Start(s.t, s.node.Namespace, command), s.setup, began}
}

// clusterTables returns the tables that `proxy render` prints for the current cluster, as nft lists them after loading
// them. It returns an error if the API server did not return the cluster's objects.
func (s *apiSetup) clusterTables() ([]string, error) {
	s.t.Helper()
	text, err := s.outside.Run(exec.Command(s.program, append([]string{"render"}, s.sourceFlagsOf(s.api.AdminKubeconfig())...)...))
	if err != nil {
		return nil, fmt.Errorf("render the cluster: %w", err)
	}
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(text)
	scratch := s.clients[2]
	_, err = scratch.Run(load)
	must.Succeed(s.t, err)
	listing, err := scratch.Run(exec.Command("nft", "-n", "list", "ruleset"))
	must.Succeed(s.t, err)
	_, err = scratch.Run(exec.Command("nft", "flush", "ruleset"))
	must.Succeed(s.t, err)
	return blocksOf(listing), nil
}

// waitForClusterTables waits until the tables are those of the cluster. The API server itself also writes objects: the
// endpoints of the Service kubernetes. It may reject a list when it has just started or is busy, and `proxy render`
// does not retry.
func (s *apiSetup) waitForClusterTables() {
	s.t.Helper()
	for deadline := time.Now().Add(recovery); ; {
		want, err := s.clusterTables()
		got, isLate := s.tables(), time.Now().After(deadline)
		switch {
		case err == nil && len(want) < 2*20:
			s.t.Fatalf("the cluster has only the tables %q", want)
		case err == nil && cmp.Equal(want, got):
			return
		case isLate:
			s.t.Fatalf("after %s the tables still differ (%v) (-want +got):\n%s", recovery, err, cmp.Diff(want, got))
		}
	}
}

// dialSlowly makes new connections from a client to an address, at a rate that leaves a small machine time for the
// rest.
func (tr *traffic) dialSlowly(client *fabric.Namespace, a app) {
	for _, to := range []netip.AddrPort{a.ipv4(), a.ipv6()} {
		tr.repeat(func() error {
			_, err := client.Request("tcp", to, requestTimeout)
			tr.dials.Add(1)
			time.Sleep(5 * time.Millisecond)
			return err
		})
	}
}

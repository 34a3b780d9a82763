package dns_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// resolvConf is the file that kubelet writes for pods of namespace default on a node with a DNS cache.
const resolvConf = "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n"

// TestResolvers checks that the resolvers of glibc, musl and Go find the endpoints of their own zone, every member by
// its own name, and all of many endpoints. Before version 1.2.4, musl finds only as many as fit into a UDP response.
func TestResolvers(t *testing.T) {
	s := newSetup(t)
	near := headless{
		"near", "topology.kubernetes.io/zone, *", []corev1.ServicePort{httpPort},
		[]string{"10.6.0.1 a name=near-0", "10.6.0.2 b name=near-1"},
	}
	many := headless{"many", "*", []corev1.ServicePort{httpPort}, nil}
	var all []string
	for i := range 200 {
		addr := fmt.Sprintf("10.6.1.%d", i+1)
		many.endpoints, all = append(many.endpoints, addr+" a"), append(all, addr)
	}
	slices.Sort(all)
	s.create(near, many)
	resolvers := map[string]func(name string) ([]string, error){"glibc": s.lookupGlibc, "musl": s.lookupMusl, "Go": s.lookupGo}
	for resolver, lookup := range resolvers {
		for _, test := range []struct {
			name string
			want []string
		}{
			{"near", []string{"10.6.0.1"}},
			{"near.default", []string{"10.6.0.1"}},
			{"near.default.svc.cluster.local", []string{"10.6.0.1"}},
			{"near-1.near", []string{"10.6.0.2"}},
		} {
			wait.Equal(t, resolver+" looks up "+test.name, strings.Join(test.want, " "), func() string {
				addrs, err := lookup(test.name)
				if err != nil {
					return err.Error()
				}
				return strings.Join(addrs, " ")
			})
		}
	}
	for resolver := range resolvers {
		wait.Success(t, resolver+" looks up many", func() error {
			addrs, err := resolvers[resolver]("many")
			for _, addr := range addrs {
				if !slices.Contains(all, addr) {
					t.Errorf("%s returns %s, which does not exist", resolver, addr)
				}
			}
			// Before version 1.2.4 musl does not retry over TCP. 512 bytes hold at least 25 addresses.
			if err == nil && len(addrs) != len(all) && (resolver != "musl" || len(addrs) < 25) {
				err = fmt.Errorf("got %d of %d addresses", len(addrs), len(all))
			}
			return err
		})
	}
	near.endpoints = []string{"10.6.0.2 b name=near-1"}
	s.updateEndpoints(near)
	for resolver, lookup := range resolvers {
		wait.Equal(t, resolver+" looks up near, whose zone is empty", "10.6.0.2", func() string {
			addrs, err := lookup("near")
			return strings.Join(addrs, " ") + errorText(err)
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lookupGlibc looks up a name by glibc.
func (s *setup) lookupGlibc(name string) ([]string, error) {
	return s.lookupWith("getent", "ahostsv4", name)
}

// lookupMusl looks up a name by musl.
func (s *setup) lookupMusl(name string) ([]string, error) {
	return s.lookupWith(site.Program(s.t, "lookup-musl"), name)
}

// lookupWith runs a program on the node with its own /etc/resolv.conf, and returns the first words of the lines that it
// prints.
func (s *setup) lookupWith(program ...string) ([]string, error) {
	output, err := s.node.Run(s.withResolver(program...))
	if err != nil {
		return nil, err
	}
	var addrs []string
	for line := range strings.Lines(output) {
		addrs = append(addrs, strings.Fields(line)[0])
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil // glibc's program prints a line for each socket type
}

// withResolver returns a command with an /etc/resolv.conf that names the node's cache.
func (s *setup) withResolver(program ...string) *exec.Cmd {
	path := filepath.Join(s.t.TempDir(), "resolv.conf")
	must.Succeed(s.t, os.WriteFile(path, []byte(resolvConf), 0o644))
	const script = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	return exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, path}, program...)...)
}

// lookupGo looks up a full name by Go's own resolver. For other names Go would use the search list of the machine's file.
func (s *setup) lookupGo(name string) ([]string, error) {
	resolver := net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
		return s.node.Dial(network, net.JoinHostPort("127.0.0.1", dnsPort), 5*time.Second)
	}}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	full := name + ".default.svc.cluster.local."
	switch strings.Count(name, ".") {
	case 1:
		if strings.HasSuffix(name, ".default") {
			full = name + ".svc.cluster.local."
		}
	case 4:
		full = name + "."
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip4", full)
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.Unmap().String()
	}
	slices.Sort(texts)
	return texts, err
}

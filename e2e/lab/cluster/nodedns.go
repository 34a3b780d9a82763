package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// nodeDNSManifests are the DNS cache of every node. UPSTREAM is the cluster's own.
//
//go:embed node-dns.yaml
var nodeDNSManifests string

const nodeDNSName = "node-local-dns"

// nodeDNS is where a node's pods find its cache: the same address on every node, as NodeLocal DNSCache has it.
var nodeDNS = netip.MustParseAddr("169.254.20.10")

// proxyDNS is where the proxies answer the cache, as manifests/dns says.
const proxyDNS = "127.0.0.1:10053"

// deployNodeDNS runs the cache on every node.
func (c *Cluster) deployNodeDNS(ctx context.Context) error {
	path := filepath.Join(c.config.Folder.Run(), "node-dns.yaml")
	if err := os.WriteFile(path, []byte(nodeDNSText()), 0o644); err != nil {
		return fmt.Errorf("writing the manifests of the nodes' DNS cache: %w", err)
	}
	return c.kubectl(ctx, "apply", "-f", path)
}

// nodeDNSText is its manifests, with the address of cluster DNS.
func nodeDNSText() string {
	return strings.ReplaceAll(nodeDNSManifests, " UPSTREAM ", " "+controlplane.DNS.String()+" ")
}

// dns is where kubelets send pods that look something up.
func (c *Cluster) dns() netip.Addr {
	if c.config.NodeDNS {
		return nodeDNS
	}
	return controlplane.DNS
}

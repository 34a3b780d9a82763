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

// nodeDNSManifests deploy the DNS cache of every node. UPSTREAM is replaced.
//
//go:embed node-dns.yaml
var nodeDNSManifests string

const nodeDNSName = "node-local-dns"

// nodeDNS is the cache's address for a node's pods. It is the same on every node, as with NodeLocal DNSCache.
var nodeDNS = netip.MustParseAddr("169.254.20.10")

// proxyDNS is the address at which the proxies answer the cache's queries, as in manifests/dns.
const proxyDNS = "127.0.0.1:10053"

// deployNodeDNS deploys the cache on every node.
func (c *Cluster) deployNodeDNS(ctx context.Context) error {
	path := filepath.Join(c.config.Folder.Run(), "node-dns.yaml")
	if err := os.WriteFile(path, []byte(nodeDNSText()), 0o644); err != nil {
		return fmt.Errorf("write the manifests of the nodes' DNS cache: %w", err)
	}
	return c.kubectl(ctx, "apply", "-f", path)
}

// nodeDNSText returns the manifests with the address of cluster DNS.
func nodeDNSText() string {
	return strings.ReplaceAll(nodeDNSManifests, " UPSTREAM ", " "+controlplane.DNS.String()+" ")
}

// dns returns the DNS server that kubelets configure for pods.
func (c *Cluster) dns() netip.Addr {
	if c.config.NodeDNS {
		return nodeDNS
	}
	return controlplane.DNS
}

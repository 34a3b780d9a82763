package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// kubeRouterManifests deploy kube-router on every node, only for NetworkPolicies. IMAGE and CLUSTER_IPS are replaced.
//
//go:embed kube-router.yaml
var kubeRouterManifests string

const kubeRouterImage = "kube-router:lab"

// imageOfKubeRouter returns an image with kube-router, and with this machine's iptables and ipset, which it runs for
// every change.
func imageOfKubeRouter(programs binaries.Programs) (image.Image, error) {
	files, err := image.Tools("ipset", "iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
	if err != nil {
		return image.Image{}, fmt.Errorf("kube-router: %w: e2e/upstream/install installs them", err)
	}
	// iptables loads a library for each kind of match and target.
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil || len(extensions) == 0 {
		return image.Image{}, errors.Join(errors.New("kube-router: no iptables extensions in /usr/lib/*/xtables"), err)
	}
	for _, file := range extensions {
		files[file] = file
	}
	return image.Image{Name: kubeRouterImage, Program: programs.Path(binaries.KubeRouter, "kube-router"), Files: files}, nil
}

// installKubeRouter deploys kube-router on every node, and waits until each has synced.
func (r runner) installKubeRouter(ctx context.Context, kubeconfig string) error {
	file := filepath.Join(r.folder, "kube-router.yaml")
	text := strings.NewReplacer("IMAGE", kubeRouterImage, "CLUSTER_IPS", fabric.ClusterIPv4.String()).Replace(kubeRouterManifests)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the manifests of kube-router: %w", err)
	}
	for _, args := range [][]string{{"apply", "-f", file}, {"rollout", "status", "daemonset/kube-router", "--timeout=3m"}} {
		if err := r.kubectl(ctx, kubeconfig, args...); err != nil {
			return fmt.Errorf("install kube-router: %w", err)
		}
	}
	return nil
}

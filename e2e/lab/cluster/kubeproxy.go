package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// kubeProxyManifests deploy kube-proxy in the same way as kubeadm. IMAGE, SERVER and SETTINGS are replaced.
//
//go:embed kube-proxy.yaml
var kubeProxyManifests string

const kubeProxyName = "kube-proxy"

// deployKubeProxy runs kube-proxy on every node.
func (c *Cluster) deployKubeProxy(ctx context.Context) error {
	text, err := kubeProxyText(c.controlPlane.URL(), c.proxySettings())
	if err != nil {
		return err
	}
	path := filepath.Join(c.config.Folder.Run(), "kube-proxy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the manifests of kube-proxy: %w", err)
	}
	return c.kubectl(ctx, "apply", "-f", path)
}

// kubeProxyText returns the manifests with the API server's address and the cluster's settings.
func kubeProxyText(server string, proxySettings map[string]any) (string, error) {
	settings, err := yaml.Marshal(proxySettings)
	if err != nil {
		return "", fmt.Errorf("encode the settings of kube-proxy: %w", err)
	}
	inConfigMap := strings.ReplaceAll(strings.TrimSpace(string(settings)), "\n", "\n    ")
	return strings.NewReplacer("IMAGE", kubeProxyImage, "SERVER", server, "SETTINGS", inConfigMap).Replace(kubeProxyManifests), nil
}

// imageOfKubeProxy returns an image with kube-proxy at the path of its official image, and with the machine's nft,
// which kube-proxy runs for every change.
func (c *Cluster) imageOfKubeProxy() (image.Image, error) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return image.Image{}, fmt.Errorf("kube-proxy runs the program nft: install the package nftables: %w", err)
	}
	output, err := exec.Command("ldd", nft).Output()
	if err != nil {
		return image.Image{}, fmt.Errorf("find the libraries of %s: %w", nft, err)
	}
	files := map[string]string{"/usr/sbin/nft": nft}
	for _, library := range libraries(string(output)) {
		files[library] = library
	}
	return image.Image{
		Name:    kubeProxyImage,
		Program: c.config.Programs.Path(binaries.Kubernetes, "kube-proxy"),
		Folder:  "/usr/local/bin",
		Files:   files,
	}, nil
}

// libraries parses the output of ldd. It returns the shared libraries of a program and the dynamic linker.
func libraries(ldd string) []string {
	var files []string
	for word := range strings.FieldsSeq(ldd) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	return files
}

// clusterCIDR returns the ranges of all pods in the format of kube-proxy's configuration.
func clusterCIDR() string { return fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String() }

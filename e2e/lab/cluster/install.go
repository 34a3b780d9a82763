package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// installProxy installs the proxy as described in manifests/README.md. Only the image and two settings are specific to
// the cluster.
func (c *Cluster) installProxy(ctx context.Context) error {
	rendered, err := c.render(ctx, c.config.Manifests)
	if err != nil {
		return err
	}
	patch, err := settings(rendered, c.controlPlane.URL(), c.proxySettings(), c.vicinitySettings())
	if err != nil {
		return fmt.Errorf("adapt %s: %w", c.config.Manifests, err)
	}
	return c.install(ctx, proxyName, c.config.Manifests, nil, patch)
}

// installWebhook installs the admission webhook. Only the image is specific to the cluster.
func (c *Cluster) installWebhook(ctx context.Context) error {
	return c.install(ctx, webhookName, c.config.WebhookManifests, c.config.WebhookComponents)
}

// render returns the manifests of a folder, or of a file.
func (c *Cluster) render(ctx context.Context, manifests string) ([]byte, error) {
	if !isFile(manifests) {
		return c.kubectlOutput(ctx, "kustomize", manifests)
	}
	text, err := os.ReadFile(manifests)
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	return text, nil
}

func isFile(path string) bool {
	status, err := os.Stat(path)
	return err == nil && status.Mode().IsRegular()
}

// install applies a folder of manifests, or a file, through a kustomization of the lab, with folders of components and
// patches. The kustomization sets the image for the manifests of a folder; a file, as in a release, names its own
// image.
func (c *Cluster) install(ctx context.Context, name, manifests string, components []string, patches ...[]byte) error {
	folder := filepath.Join(c.config.Folder.Install(), name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	base, err := baseOf(folder, manifests)
	if err != nil {
		return err
	}
	var added []string
	for _, component := range components {
		from, err := baseOf(folder, component)
		if err != nil {
			return err
		}
		added = append(added, from)
	}
	kustomization, err := kustomizationOf(name, base, added, patches...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), kustomization, 0o644); err != nil {
		return fmt.Errorf("write the kustomization: %w", err)
	}
	return c.kubectl(ctx, "apply", "-k", folder)
}

// baseOf returns the path by which a kustomization in a folder refers to the manifests. kustomize accepts no absolute
// path, and no file of a parent folder.
func baseOf(folder, manifests string) (string, error) {
	if !isFile(manifests) {
		base, err := filepath.Rel(folder, manifests)
		if err != nil {
			return "", fmt.Errorf("find %s from %s: %w", manifests, folder, err)
		}
		return base, nil
	}
	text, err := os.ReadFile(manifests)
	if err != nil {
		return "", fmt.Errorf("read the manifests: %w", err)
	}
	const name = "manifests.yaml"
	if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
		return "", fmt.Errorf("copy the manifests: %w", err)
	}
	return name, nil
}

// kustomizationOf returns a kustomization of the manifests in base with components, patches, and the lab's tag for the
// image.
func kustomizationOf(image, base string, components []string, patches ...[]byte) ([]byte, error) {
	content := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []string{base},
		"images":     []map[string]string{{"name": image, "newTag": imageTag}},
	}
	if components != nil {
		content["components"] = components
	}
	var written []map[string]string
	for _, patch := range patches {
		written = append(written, map[string]string{"patch": string(patch)})
	}
	if written != nil {
		content["patches"] = written
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode the kustomization of %s: %w", image, err)
	}
	return text, nil
}

// The files in Vicinity's ConfigMap.
const (
	configFile     = "config.conf"
	kubeconfigFile = "kubeconfig.conf"
)

var errNoConfigMap = fmt.Errorf("no ConfigMap %s with %s in the manifests", proxyName, configFile)

// configMap is the part of a ConfigMap that matters here.
type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Data       map[string]string `json:"data"`
}

// proxySettings returns the settings of a service proxy that are specific to the cluster, by their names in
// kube-proxy's configuration.
func (c *Cluster) proxySettings() map[string]any {
	settings := map[string]any{"clusterCIDR": clusterCIDR()}
	if c.config.Localhost {
		settings["nodePortAddresses"] = []string{"primary", "localhost"}
		settings["featureGates"] = map[string]bool{"KubeProxyNFTablesLocalhostNodePorts": true}
	}
	return settings
}

// vicinitySettings returns the proxy's settings that kube-proxy does not have.
func (c *Cluster) vicinitySettings() map[string]string {
	settings := maps.Clone(c.config.Settings)
	if c.config.NodeDNS {
		if settings == nil {
			settings = map[string]string{}
		}
		settings["dnsBindAddress"] = proxyDNS
	}
	return settings
}

// settings returns a patch for the ConfigMap of a service proxy, which it finds in its manifests. The patch sets the
// API server's address, the given settings in kube-proxy's document, and those of Vicinity, if any, in a second
// document.
func settings(manifests []byte, server string, proxySettings map[string]any, vicinitySettings map[string]string) ([]byte, error) {
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		var object configMap
		if err := yaml.Unmarshal(document, &object); err != nil || object.Kind != "ConfigMap" || object.Data[configFile] == "" {
			continue // other kinds are not needed
		}
		err := errors.Join(
			editFile(object.Data, configFile, func(file map[string]any) { maps.Copy(file, proxySettings) }),
			editFile(object.Data, kubeconfigFile, func(file map[string]any) { setServer(file, server) }),
			addDocument(object.Data, vicinitySettings),
		)
		if err != nil {
			return nil, err
		}
		patch, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode the ConfigMap: %w", err)
		}
		return patch, nil
	}
	return nil, errNoConfigMap
}

// editFile changes a file in a ConfigMap, if the file exists: a cluster with another service proxy needs no kubeconfig.
func editFile(data map[string]string, name string, change func(file map[string]any)) error {
	if data[name] == "" {
		return nil
	}
	var file map[string]any
	if err := yaml.Unmarshal([]byte(data[name]), &file); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	change(file)
	text, err := yaml.Marshal(file)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	data[name] = string(text)
	return nil
}

// addDocument adds a document with Vicinity's settings to the proxy's configuration.
func addDocument(data map[string]string, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	document := map[string]string{"apiVersion": "proxy.config.vicinity.dev/v1alpha1", "kind": "VicinityProxyConfiguration"}
	maps.Copy(document, settings)
	text, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	data[configFile] += "---\n" + string(text)
	return nil
}

// setServer sets the address of every cluster in a kubeconfig.
func setServer(kubeconfig map[string]any, server string) {
	clusters, _ := kubeconfig["clusters"].([]any)
	for _, entry := range clusters {
		item, _ := entry.(map[string]any)
		if cluster, ok := item["cluster"].(map[string]any); ok {
			cluster["server"] = server
		}
	}
}

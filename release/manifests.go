package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// installMethod is an installation method: a folder of manifests, and the file that is rendered from it.
type installMethod struct {
	file, folder string
	// header describes what the file installs, and what has to be edited first.
	header string
}

const editTwoValues = `Edit two values in the ConfigMap vicinity-proxy before you apply it:
server, the address of the API server, and clusterCIDR, the addresses of pods.`

const noEdits = "It can be applied without edits."

var installMethods = []installMethod{
	{"install.yaml", "manifests", "Vicinity in place of kube-proxy. Stop kube-proxy first.\n" + editTwoValues},
	{"install-beside-kube-proxy.yaml", "manifests/beside-kube-proxy", `Vicinity next to kube-proxy, for Services with the label
service.kubernetes.io/service-proxy-name: vicinity.
Edit one value in the ConfigMap vicinity-proxy before you apply it: clusterCIDR, the addresses of pods.`},
	{"install-webhook.yaml", "manifests/webhook", "The admission webhook.\n" + noEdits},
	{
		"install-webhook-enforce.yaml", "manifests/webhook/enforce",
		"The admission webhook. If it does not respond, the API server rejects the objects that it checks.\n" + noEdits,
	},
	{
		"install-webhook-topology-slices.yaml", "manifests/webhook/topology-slices",
		"The admission webhook, which also publishes TopologySlices for the proxies of large clusters.\n" + noEdits,
	},
	{
		"install-webhook-cel.yaml", "manifests/webhook-cel",
		"The webhook's rules as policies of the API server, for clusters without a webhook.\n" + noEdits,
	},
}

// renderManifests renders the file of each installation method, with the images of this version.
func (r release) renderManifests(ctx context.Context) error {
	for _, method := range installMethods {
		text, err := r.render(ctx, method)
		if err != nil {
			return fmt.Errorf("render %s: %w", method.folder, err)
		}
		if err := os.WriteFile(r.path(method.file), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", method.file, err)
		}
	}
	r.step("rendered the manifests")
	return nil
}

// render renders a folder of manifests with the release's images and a version label.
func (r release) render(ctx context.Context, method installMethod) (string, error) {
	folder := r.path("kustomize")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	text, err := r.renderIn(ctx, folder, method)
	if err := errors.Join(err, os.RemoveAll(folder)); err != nil {
		return "", err
	}
	if strings.Contains(text, ":VERSION") {
		return "", fmt.Errorf("an image has no version:\n%s", text)
	}
	header := fmt.Sprintf("Vicinity %s\n\n%s\n\n%s/tree/%s/%s", r.version, method.header, source, r.version, method.folder)
	return comment(header) + text + "\n", nil
}

// renderIn renders with a kustomization in an existing, empty folder.
func (r release) renderIn(ctx context.Context, folder string, method installMethod) (string, error) {
	base, err := relative(folder, method.folder)
	if err != nil {
		return "", err
	}
	var images []map[string]string
	for _, name := range []string{proxy, webhook} {
		images = append(images, map[string]string{
			"name": "vicinity-" + name, "newName": r.registry + "/vicinity-" + name, "newTag": r.version,
		})
	}
	kustomization, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []string{base},
		"images":     images,
		"labels":     []any{map[string]any{"pairs": map[string]string{"app.kubernetes.io/version": r.version}}},
	})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), kustomization, 0o644); err != nil {
		return "", err
	}
	return output(ctx, r.kustomize, "build", folder)
}

// comment formats a text as comment lines.
func comment(text string) string {
	var lines strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		lines.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	return lines.String()
}

// relative returns the path from one folder to another, because kustomize accepts no absolute path.
func relative(from, to string) (string, error) {
	absolute, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	target, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	return filepath.Rel(absolute, target)
}

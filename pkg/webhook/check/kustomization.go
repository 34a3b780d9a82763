package check

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// kustomizationNames are the file names that kustomize recognizes in a folder.
var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// kustomization has the fields of a kustomization that name files, or set annotations and labels.
type kustomization struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Resources             []string         `json:"resources"`
	Patches               []kustomizePatch `json:"patches"`
	PatchesJSON6902       []kustomizePatch `json:"patchesJson6902"`
	PatchesStrategicMerge []string         `json:"patchesStrategicMerge"`
	ConfigMapGenerator    []generator      `json:"configMapGenerator"`
	SecretGenerator       []generator      `json:"secretGenerator"`
	Replacements          []pathRef        `json:"replacements"`
	Configurations        []string         `json:"configurations"`
	CRDs                  []string         `json:"crds"`
	OpenAPI               pathRef          `json:"openapi"`
	HelmCharts            []inflatedChart  `json:"helmCharts"`

	// Set on every object. Kustomize rejects a value that is not a string.
	CommonAnnotations map[string]any `json:"commonAnnotations"`
	CommonLabels      map[string]any `json:"commonLabels"`
	Labels            []labelPairs   `json:"labels"`
}

type labelPairs struct {
	Pairs map[string]any `json:"pairs"`
}

type kustomizePatch struct {
	Path  string `json:"path"`
	Patch string `json:"patch"` // its text, instead of a path
}

type generator struct {
	Files []string `json:"files"` // each "path" or "key=path"
	Envs  []string `json:"envs"`
	Env   string   `json:"env"`
}

type pathRef struct {
	Path string `json:"path"`
}

type inflatedChart struct {
	ValuesFile            string   `json:"valuesFile"`
	AdditionalValuesFiles []string `json:"additionalValuesFiles"`
}

// parseKustomization parses a file with one of kustomize's names; false if it contains something else.
func parseKustomization(text []byte) (kustomization, bool) {
	var k kustomization
	if err := yaml.Unmarshal(text, &k); err != nil {
		return k, false
	}
	isKustomize := strings.HasPrefix(k.APIVersion, "kustomize.config.k8s.io/")
	return k, k.Kind == "" || isKustomize && (k.Kind == "Kustomization" || k.Kind == "Component")
}

// inlinePatches returns the texts of patches in the kustomization itself, by field. A text without a line break is a
// path.
func (k *kustomization) inlinePatches() map[string]string {
	texts := map[string]string{}
	for field, patches := range map[string][]kustomizePatch{"patches": k.Patches, "patchesJson6902": k.PatchesJSON6902} {
		for i, patch := range patches {
			if patch.Patch != "" {
				texts[fmt.Sprintf("%s[%d].patch", field, i)] = patch.Patch
			}
		}
	}
	for i, text := range k.PatchesStrategicMerge {
		if strings.Contains(text, "\n") {
			texts[fmt.Sprintf("patchesStrategicMerge[%d]", i)] = text
		}
	}
	return texts
}

// commonMetadata are annotations or labels that a kustomization sets on every object.
type commonMetadata struct {
	field         string // in the kustomization
	metadataField string // "annotations" or "labels", in the objects
	values        map[string]any
}

// common returns the annotations and labels for every object, in the order in which they are usually written.
func (k *kustomization) common() []commonMetadata {
	all := []commonMetadata{{"commonAnnotations", "annotations", k.CommonAnnotations}, {"commonLabels", "labels", k.CommonLabels}}
	for i, label := range k.Labels {
		all = append(all, commonMetadata{fmt.Sprintf("labels[%d].pairs", i), "labels", label.Pairs})
	}
	return all
}

// files returns the files that a kustomization names, except for resources, with their roles.
func (k *kustomization) files() map[string]role {
	roles := map[string]role{}
	add := func(fileRole role, files ...string) {
		for _, file := range files {
			if file != "" && !slices.Contains(k.Resources, file) {
				roles[filepath.Clean(file)] = fileRole
			}
		}
	}
	for _, patch := range slices.Concat(k.Patches, k.PatchesJSON6902) {
		add(patchFile, patch.Path)
	}
	add(patchFile, k.PatchesStrategicMerge...)
	for _, generator := range slices.Concat(k.ConfigMapGenerator, k.SecretGenerator) {
		for _, file := range generator.Files {
			if _, path, hasKey := strings.Cut(file, "="); hasKey {
				file = path
			}
			add(inputFile, file)
		}
		add(inputFile, append(generator.Envs, generator.Env)...)
	}
	for _, replacement := range k.Replacements {
		add(inputFile, replacement.Path)
	}
	for _, chart := range k.HelmCharts {
		add(inputFile, append(chart.AdditionalValuesFiles, chart.ValuesFile)...)
	}
	add(inputFile, slices.Concat(k.Configurations, k.CRDs, []string{k.OpenAPI.Path})...)
	return roles
}

package check

import (
	"os"
	"path/filepath"
	"strings"
)

// role is the purpose of a file that does not contain objects in the form that an API server gets.
type role string

// The roles.
const (
	kustomizationFile role = "kustomization"
	patchFile         role = "patch"
	inputFile         role = "kustomizeInput" // read by kustomize, but neither a resource nor a patch
	chartFile         role = "helmChart"
	excludedFile      role = "excluded"
)

// fileContext is the classification of files by the folders around them. So a check of a single file, as before a
// commit, gives the same result as a check of the folder.
type fileContext struct {
	charts     map[string]bool           // whether an absolute folder is a Helm chart; present if it has been checked
	classified map[string]classification // the files named by kustomizations, by absolute path
}

// classification is the role of a file, and the reason.
type classification struct {
	role   role
	reason string
}

// loadContext reads the kustomizations in the folders of files, and in those above: by default kustomize allows no
// others to name them.
func loadContext(files []string) *fileContext {
	c := &fileContext{charts: map[string]bool{}, classified: map[string]classification{}}
	for _, file := range files {
		if file == Stdin {
			continue
		}
		for folder := range foldersAbove(file) {
			if _, seen := c.charts[folder]; seen {
				break // the folders above have been read as well
			}
			c.charts[folder] = isFile(filepath.Join(folder, "Chart.yaml"))
			c.readKustomization(folder)
		}
	}
	return c
}

// foldersAbove yields the absolute folders that contain a file, from its own upwards.
func foldersAbove(file string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		absolute, err := filepath.Abs(file)
		for folder := filepath.Dir(absolute); err == nil && yield(folder) && folder != filepath.Dir(folder); {
			folder = filepath.Dir(folder)
		}
	}
}

func isFile(name string) bool {
	status, err := os.Stat(name)
	return err == nil && status.Mode().IsRegular()
}

// readKustomization classifies the files that the kustomization of a folder names, if there is one. An unreadable one
// is ignored here, and is an error if it is among the checked files.
func (c *fileContext) readKustomization(folder string) {
	for _, name := range kustomizationNames {
		path := filepath.Join(folder, name)
		if !isFile(path) {
			continue
		}
		text, err := readAny(path, nil)
		if err != nil {
			return
		}
		parsed, isKustomization := parseKustomization(text)
		if !isKustomization {
			return
		}
		c.classified[path] = classification{kustomizationFile, "a kustomization; check what 'kubectl kustomize' prints"}
		for file, role := range parsed.files() {
			reason := "input of a kustomization, not a manifest"
			if role == patchFile {
				reason = "a patch that no rule checks"
			}
			c.classified[filepath.Join(folder, file)] = classification{role, reason}
		}
		return
	}
}

// classify returns the classification of a file; false if it has none.
func (c *fileContext) classify(file string) (classification, bool) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return classification{}, false
	}
	if found, isClassified := c.classified[absolute]; isClassified {
		return found, true
	}
	for folder := range foldersAbove(file) {
		relPath, err := filepath.Rel(folder, absolute)
		if c.charts[folder] && err == nil && isChartFile(filepath.ToSlash(relPath)) {
			return classification{chartFile, "a file of a Helm chart; check what 'helm template' prints"}, true
		}
	}
	return classification{}, false
}

// isChartFile reports whether a file in a chart's folder is one that Helm reads there, or contains values for it.
// chart-testing has its values in ci/. Charts within a chart are separate, and crds/ contains manifests.
func isChartFile(file string) bool {
	folder, name := filepath.Split(file)
	stem := strings.TrimSuffix(name, filepath.Ext(name))
	switch {
	case strings.HasPrefix(file, "templates/"):
		return true
	case file == "Chart.yaml" || file == "requirements.yaml":
		return true
	}
	return (folder == "" || folder == "ci/") && (strings.HasPrefix(stem, "values") || strings.HasSuffix(stem, "values"))
}

package check

import (
	"os"
	"path/filepath"
	"strings"
)

// role is the purpose of a file that does not hold objects in the form that an API server gets.
type role string

// The roles.
const (
	kustomizationFile role = "kustomization"
	patchFile         role = "patch"
	inputFile         role = "kustomizeInput" // read by kustomize, and neither a resource nor a patch
	chartFile         role = "helmChart"
	excludedFile      role = "excluded"
)

// fileContext are what the folders around the files say about them. So a check of a single file, as before a commit,
// gives the same as a check of the folder.
type fileContext struct {
	charts map[string]bool           // whether an absolute folder is a Helm chart; present if it has been looked at
	named  map[string]classification // what kustomizations say, by absolute path
}

// classification is the role of a file, and why it has it.
type classification struct {
	role   role
	reason string
}

// loadContext reads the kustomizations in the folders of files, and in those above: kustomize allows no others to name
// them, unless told to.
func loadContext(files []string) *fileContext {
	s := &fileContext{charts: map[string]bool{}, named: map[string]classification{}}
	for _, file := range files {
		if file == Stdin {
			continue
		}
		for folder := range foldersAbove(file) {
			if _, seen := s.charts[folder]; seen {
				break // and with it what is above
			}
			s.charts[folder] = isFile(filepath.Join(folder, "Chart.yaml"))
			s.readKustomization(folder)
		}
	}
	return s
}

// foldersAbove yields the absolute folders in which a file is, from its own upwards.
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

// readKustomization takes in what the kustomization of a folder says, if there is one. An unreadable one says nothing,
// and is an error if it is among the files that are checked.
func (s *fileContext) readKustomization(folder string) {
	for _, name := range kustomizationNames {
		path := filepath.Join(folder, name)
		if !isFile(path) {
			continue
		}
		text, err := readAny(path, nil)
		if err != nil {
			return
		}
		parsed, isOne := parseKustomization(text)
		if !isOne {
			return
		}
		s.named[path] = classification{kustomizationFile, "a kustomization; check what 'kubectl kustomize' prints"}
		for file, role := range parsed.files() {
			reason := "read by a kustomization above it, and no manifest"
			if role == patchFile {
				reason = "a patch that no rule is about"
			}
			s.named[filepath.Join(folder, file)] = classification{role, reason}
		}
		return
	}
}

// of returns what is known about a file; false if nothing is.
func (s *fileContext) of(file string) (classification, bool) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return classification{}, false
	}
	if found, isNamed := s.named[absolute]; isNamed {
		return found, true
	}
	for folder := range foldersAbove(file) {
		below, err := filepath.Rel(folder, absolute)
		if s.charts[folder] && err == nil && isChartFile(filepath.ToSlash(below)) {
			return classification{chartFile, "a file of a Helm chart; check what 'helm template' prints"}, true
		}
	}
	return classification{}, false
}

// isChartFile reports whether a file in a chart's folder is what Helm reads there, or values for it. In ci/ chart-testing
// has values of its own. Charts within a chart count separately, and crds/ holds manifests.
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

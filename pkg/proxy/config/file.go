package config

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// APIVersion is the supported version of kube-proxy's configuration.
const APIVersion = "kubeproxy.config.k8s.io/v1alpha1"

// kind is the kind of kube-proxy's document.
const kind = "KubeProxyConfiguration"

// File is a configuration file that has been read.
type File struct {
	// Path is the path of the file.
	Path string
	// Configuration is the content of the file, without defaults. The settings that have a meaning here are in the section
	// nftables, regardless of the file's mode.
	Configuration *Configuration
	// IgnoredSettings has a line for each setting that has no meaning here, and for each document of another program: its
	// field or kind, and why.
	IgnoredSettings []string
	// VicinityFields are our own settings in the file, by field.
	VicinityFields map[string]string

	content        []byte
	vicinityConfig VicinityConfig
}

// Read reads a file strictly, and checks all settings that have a meaning here. An error names the file and every
// invalid field. vicinity describes the settings that our own document may have.
func Read(path string, vicinity VicinityConfig) (*File, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	file := &File{Path: path, content: bytes.Clone(content), vicinityConfig: vicinity}
	if err := file.parse(content); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return file, nil
}

// Watched returns the file for a watch that ends when the file has new content that is valid.
func (f *File) Watched() filewatch.File {
	return filewatch.File{Path: f.Path, Content: f.content, Check: func() error {
		_, err := Read(f.Path, f.vicinityConfig)
		return err
	}}
}

// parse reads the text of a file.
func (f *File) parse(text []byte) error {
	found, err := readDocuments(text)
	if err != nil {
		return err
	}
	var errs [2]error
	f.Configuration = &Configuration{}
	if found.kubeProxy != nil {
		f.Configuration, f.IgnoredSettings, errs[0] = parseKubeProxy(found.kubeProxy, f.vicinityConfig)
	}
	for i := range found.skipped {
		f.IgnoredSettings = append(f.IgnoredSettings, found.skipped[i].Type.Kind+": "+skippedText(&found.skipped[i]))
	}
	if found.vicinity != nil {
		if f.VicinityFields, errs[1] = f.vicinityConfig.decode(found.vicinity); errs[1] != nil {
			errs[1] = fmt.Errorf("document of kind %s: %w", VicinityKind, errs[1])
		}
	}
	return errors.Join(errs[:]...)
}

// parseKubeProxy reads kube-proxy's document, and returns its content and the notes about it.
func parseKubeProxy(document *manifest.Part, vicinity VicinityConfig) (*Configuration, []string, error) {
	var c Configuration
	notes, err := decode(document, &c, vicinity)
	if err != nil {
		return nil, nil, err
	}
	all := append(notes, ignoredMessages(&c)...)
	all = append(all, unusedDetectors(&c)...)
	all = append(all, applyModeSection(&c)...)
	_, fieldErrors := Resolve(c.DeepCopy())
	return &c, all, (&checker{fieldErrors}).err()
}

package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// kubeProxyType is the type of kube-proxy's document.
var kubeProxyType = manifest.Type{APIVersion: APIVersion, Kind: kind}

// otherGroups maps the API groups whose documents kubeadm keeps in one file with kube-proxy's to the program that reads
// them.
var otherGroups = map[string]string{"kubeadm.k8s.io": "kubeadm", "kubelet.config.k8s.io": "the kubelet"}

// documents are the documents of a file.
type documents struct {
	kubeProxy, vicinity *manifest.Part // nil if the file has none
	// skipped are the documents for other programs.
	skipped []manifest.Part
}

// readDocuments finds kube-proxy's document and our own; a file may lack one of them. It skips the documents of kubeadm
// and the kubelet, and rejects any other document.
func readDocuments(text []byte) (documents, error) {
	var found documents
	for part := range manifest.Parts(manifest.YAML, text, kubeProxyType, vicinityType) {
		target := &found.kubeProxy
		switch fault := part.Fault; {
		case fault != nil && part.JSON == nil && fault.Line == 0: // no text
			return documents{}, errors.New(fault.Reason)
		case fault != nil && fault.Line > 0:
			return documents{}, fmt.Errorf("line %d: %s", fault.Line, fault.Reason)
		case programOf(&part) != "":
			found.skipped = append(found.skipped, part)
			continue
		case part.Type.Kind == "ConfigMap":
			return documents{}, errors.New("the file is a ConfigMap; use the text under its key config.conf, " +
				"as in a pod that mounts it")
		case part.Type == vicinityType:
			target = &found.vicinity
		case part.Type != kubeProxyType:
			return documents{}, fmt.Errorf("line %d: apiVersion %q and kind %q are not %s and %s",
				part.LineOf("kind"), part.Type.APIVersion, part.Type.Kind, APIVersion, kind)
		}
		if fault := part.Fault; fault != nil {
			return documents{}, fmt.Errorf("%s: %s", fault.Field, fault.Reason)
		}
		if *target != nil {
			return documents{}, fmt.Errorf("lines %d and %d: the file has two documents of kind %s; only one is allowed",
				(*target).LineOf("kind"), part.LineOf("kind"), part.Type.Kind)
		}
		*target = &part
	}
	return found, found.missingError()
}

// missingError returns the error for a file without a document to read; nil if it has one.
func (d *documents) missingError() error {
	switch {
	case d.kubeProxy != nil || d.vicinity != nil:
		return nil
	case len(d.skipped) > 0:
		return fmt.Errorf("the file has no document of kind %s, but %s", kind, d.skipped[0].Type.Kind)
	}
	return fmt.Errorf("the file is empty; it must have a document of kind %s", kind)
}

// programOf returns the other program that reads a document; empty if there is none.
func programOf(document *manifest.Part) string {
	group, _, _ := strings.Cut(document.Type.APIVersion, "/")
	return otherGroups[group]
}

// skippedText returns the note about a skipped document.
func skippedText(document *manifest.Part) string {
	return "a document of " + programOf(document) + "; it is not read"
}

// decode reads a document. It returns a note for each field that is unknown to kube-proxy or set twice, if nothing here
// depends on it. Any other field that is unknown, set twice or of the wrong type is an error.
func decode(document *manifest.Part, into *Configuration, vicinity VicinityConfig) (notes []string, err error) {
	var errs []error
	for _, fault := range document.Decode(into) {
		path, text := fault.Field, fault.Reason
		if _, isOwn := vicinity.Fields[path]; isOwn && text == manifest.UnknownField {
			errs = append(errs, fmt.Errorf("%s: %s; it belongs in the document of kind %s", path, text, VicinityKind))
			continue
		}
		if reason := unusedValue(fault); reason != "" {
			notes = append(notes, path+": "+reason)
			continue
		}
		if path != "" {
			text = path + ": " + text
		}
		if suggested := suggestion(fault); suggested != "" {
			text += fmt.Sprintf("; did you mean %s?", suggested)
		}
		errs = append(errs, errors.New(text))
	}
	return notes, errors.Join(errs...)
}

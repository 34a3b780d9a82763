package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// wanted is the type of the one document.
var wanted = manifest.Type{APIVersion: APIVersion, Kind: kind}

// singleDocument returns the one document of a file, and refuses what is no configuration of kube-proxy.
func singleDocument(text []byte) (*manifest.Part, error) {
	parts := slices.Collect(manifest.Parts(manifest.YAML, text, wanted))
	if len(parts) != 1 {
		return nil, fmt.Errorf("the file holds %d documents, and must hold one", len(parts))
	}
	part := &parts[0]
	switch fault := part.Fault; {
	case fault != nil && fault.Line > 0:
		return nil, fmt.Errorf("line %d: %s", fault.Line, fault.Reason)
	case part.Type.Kind == "ConfigMap":
		return nil, errors.New("the file is a ConfigMap; what is needed is the text under its key config.conf, as a pod sees it that mounts it")
	case part.Type != wanted:
		return nil, fmt.Errorf("apiVersion %q and kind %q are not %s and %s", part.Type.APIVersion, part.Type.Kind, APIVersion, kind)
	case fault != nil:
		return nil, fmt.Errorf("%s: %s", fault.Field, fault.Reason)
	}
	return part, nil
}

// decode reads a document, and returns a note for each field that nothing here depends on, though no kube-proxy has it or
// it is set twice. Everything else that is unknown, set twice or of the wrong type is an error.
func decode(document *manifest.Part, into *Configuration) (notes []string, err error) {
	var errs []error
	for _, fault := range document.Decode(into) {
		path, text := fault.Field, fault.Reason
		if why := withoutEffect(fault); why != "" {
			notes = append(notes, path+": "+why)
			continue
		}
		if path != "" {
			text = path + ": " + text
		}
		if meant := suggestion(fault); meant != "" {
			text += fmt.Sprintf("; did you mean %s?", meant)
		}
		errs = append(errs, errors.New(text))
	}
	return notes, errors.Join(errs...)
}

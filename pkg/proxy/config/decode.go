package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// wanted is the type of kube-proxy's document.
var wanted = manifest.Type{APIVersion: APIVersion, Kind: kind}

// documents returns kube-proxy's document and our own. A file may lack either one. It refuses any other document.
func documents(text []byte) (kubeProxys, own *manifest.Part, err error) {
	parts := slices.Collect(manifest.Parts(manifest.YAML, text, wanted, ownType))
	at := slices.IndexFunc(parts, func(part manifest.Part) bool { return part.Type == ownType && part.Fault == nil })
	if at >= 0 {
		own = &parts[at]
		if parts = slices.Delete(slices.Clone(parts), at, at+1); len(parts) == 0 {
			return nil, own, nil
		}
	}
	if len(parts) != 1 {
		return nil, nil, fmt.Errorf("the file holds %d documents, and must hold one", len(parts))
	}
	part := &parts[0]
	switch fault := part.Fault; {
	case fault != nil && fault.Line > 0:
		return nil, nil, fmt.Errorf("line %d: %s", fault.Line, fault.Reason)
	case part.Type.Kind == "ConfigMap":
		return nil, nil, errors.New("the file is a ConfigMap; what is needed is the text under its key config.conf, as a pod sees it " +
			"that mounts it")
	case part.Type != wanted:
		return nil, nil, fmt.Errorf("apiVersion %q and kind %q are not %s and %s", part.Type.APIVersion, part.Type.Kind, APIVersion, kind)
	case fault != nil:
		return nil, nil, fmt.Errorf("%s: %s", fault.Field, fault.Reason)
	}
	return part, own, nil
}

// decode reads a document, and returns a note for each field that no kube-proxy has, or that is set twice, if nothing
// here depends on it. Everything else that is unknown, set twice or of the wrong type is an error.
func decode(document *manifest.Part, into *Configuration, own Own) (notes []string, err error) {
	var errs []error
	for _, fault := range document.Decode(into) {
		path, text := fault.Field, fault.Reason
		if _, isOurs := own.Fields[path]; isOurs && text == manifest.UnknownField {
			errs = append(errs, fmt.Errorf("%s: %s; it belongs in the document of kind %s", path, text, OwnKind))
			continue
		}
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

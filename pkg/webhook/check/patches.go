package check

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// jsonPatchOps are the operations of RFC 6902.
var jsonPatchOps = []string{"add", "remove", "replace", "move", "copy", "test"}

type operation struct {
	Op   string  `json:"op"`
	Path *string `json:"path"`
}

// isJSONPatch reports whether a document is a JSON patch: a list of operations, each with its path.
func isJSONPatch(document []byte) bool {
	var operations []operation
	if json.Unmarshal(document, &operations) != nil || len(operations) == 0 {
		return false
	}
	return !slices.ContainsFunc(operations, func(o operation) bool { return o.Path == nil || !slices.Contains(jsonPatchOps, o.Op) })
}

// readInlinePatches reads the patches whose text is in a kustomization, and the metadata that it sets on every object.
func (f *Files) readInlinePatches(name string, text []byte) {
	parsed, _ := parseKustomization(text)
	patches := parsed.inlinePatches()
	for document := range manifest.Parts(manifest.FormatOfText(name, text), text) {
		for _, added := range parsed.common() {
			f.readCommon(location{file: name, part: &document}, added)
		}
		for _, field := range slices.Sorted(maps.Keys(patches)) {
			// Empty lines before the patch make its line numbers those of the kustomization. A block of text begins below its
			// key.
			above := document.LineOf(field)
			if !strings.Contains(patches[field], "\n") {
				above--
			}
			_ = f.readPatches(name, []byte(strings.Repeat("\n", above)+patches[field]))
		}
		return // kustomize reads one document
	}
}

// readCommon reads the annotations or labels that a kustomization sets on every object. They are checked like the
// ones of a Service. Defaults for Namespaces are checked like the ones of a Namespace.
func (f *Files) readCommon(loc location, added commonMetadata) {
	loc.objectField, loc.partField = "metadata."+added.metadataField, added.field
	forServices, forNamespaces := map[string]string{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(added.values)) {
		value, isText := added.values[key].(string)
		switch {
		case added.values[key] == nil:
		case !isText:
			written, _ := json.Marshal(added.values[key]) // it was JSON
			f.addError(loc, added.field+"["+key+"]", mustBeString(written))
		case slices.ContainsFunc(policy.NamespaceDefaults[:], func(d struct{ Name, Of string }) bool { return d.Name == key }):
			forNamespaces[key] = value
		default:
			forServices[key] = value
		}
	}
	metadata := func(values map[string]string) rules.Metadata {
		if added.metadataField == "labels" {
			return rules.Metadata{Labels: values}
		}
		return rules.Metadata{Annotations: values}
	}
	if len(forServices) > 0 {
		f.objects = append(f.objects, object{location: loc, service: &rules.Service{Metadata: metadata(forServices)}, isPatch: true})
	}
	if len(forNamespaces) > 0 {
		f.objects = append(f.objects, object{location: loc, namespace: &rules.Namespace{Metadata: metadata(forNamespaces)}, isPatch: true})
	}
}

// readPatches reads strategic-merge patches of Services and Namespaces. A patch need not name its target. It reports
// whether there is something to check: JSON patches are not checked.
func (f *Files) readPatches(name string, text []byte) (found bool) {
	countBefore := len(f.objects) + len(f.findings)
	for part := range manifest.Parts(manifest.FormatOfText(name, text), text, serviceType, namespaceType) {
		loc := location{file: name, part: &part}
		switch {
		case part.Fault != nil && part.JSON != nil && part.Type.Kind == "":
		case part.Fault != nil:
			explainTemplate(part.Fault, text)
			f.addError(loc, part.Fault.Field, part.Fault.Reason)
		case part.Type == serviceType:
			var service rules.Service
			if f.decode(loc, &service, serviceFields) {
				dropRemovedKeys(&service.Metadata, part.JSON)
				f.objects = append(f.objects, object{location: loc, service: &service, isPatch: true})
			}
		case part.Type == namespaceType:
			var namespace rules.Namespace
			if f.decode(loc, &namespace, namespaceFields) {
				dropRemovedKeys(&namespace.Metadata, part.JSON)
				f.objects = append(f.objects, object{location: loc, namespace: &namespace, isPatch: true})
			}
		}
	}
	return len(f.objects)+len(f.findings) > countBefore
}

// dropRemovedKeys removes from metadata the annotations and labels that a patch removes: those that are null, which a
// map of strings cannot distinguish from empty ones.
func dropRemovedKeys(metadata *rules.Metadata, patch []byte) {
	var written struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
			Labels      map[string]*string `json:"labels"`
		} `json:"metadata"`
	}
	if json.Unmarshal(patch, &written) != nil {
		return
	}
	isRemoved := func(patched map[string]*string) func(string, string) bool {
		return func(key, _ string) bool { return patched[key] == nil }
	}
	maps.DeleteFunc(metadata.Annotations, isRemoved(written.Metadata.Annotations))
	maps.DeleteFunc(metadata.Labels, isRemoved(written.Metadata.Labels))
}

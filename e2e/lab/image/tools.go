package image

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tools returns programs of this machine and the shared libraries that they need, for an Image's Files, by path in the
// image. The error names all programs that are missing.
func Tools(names ...string) (map[string]string, error) {
	files := map[string]string{}
	var missing []string
	for _, name := range names {
		found, err := exec.LookPath(name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		file, err := filepath.EvalSymlinks(found)
		if err != nil {
			return nil, fmt.Errorf("find the program %s: %w", name, err)
		}
		files["/bin/"+name] = file
		libraries, err := librariesOf(file)
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			files[library] = library
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("programs not found: %s", strings.Join(missing, ", "))
	}
	return files, nil
}

// librariesOf returns the shared libraries of a program, and none for a static one.
func librariesOf(program string) ([]string, error) {
	output, err := exec.Command("ldd", program).Output()
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok && strings.Contains(string(exitErr.Stderr), "not a dynamic executable") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
	}
	var libraries []string
	for word := range strings.FieldsSeq(string(output)) {
		if filepath.IsAbs(word) {
			libraries = append(libraries, word)
		}
	}
	return libraries, nil
}

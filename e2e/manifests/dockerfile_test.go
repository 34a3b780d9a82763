package manifests_test

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// images are those that users build, by the name of their program.
var images = map[string]struct {
	dockerfile, user string
	pods             func(*testing.T) map[string]corev1.PodSpec
}{
	// Root, for its one capability, which Kubernetes grants to no other user.
	"proxy":   {"Dockerfile.proxy", "0:0", vicinityPods},
	"webhook": {"Dockerfile.webhook", "65532:65532", webhookPods},
}

// webhookPods returns the pods that run the webhook's image, by the file that defines them.
func webhookPods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, name := range []string{"base", "enforce", "certificate-files", "default-on-update", "topology-slices"} {
		var deployment appsv1.Deployment
		parseOnly(t, kubectl(t, "kustomize", filepath.Join(folder, "webhook", name)), "Deployment", &deployment)
		pods[name] = deployment.Spec.Template.Spec
	}
	return pods
}

// instructions returns a Dockerfile's lines by instruction, without comments and with continuation lines joined.
func instructions(t *testing.T, dockerfile string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, dockerfile))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		instruction, arguments, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && !strings.HasPrefix(instruction, "#") {
			found[instruction] = append(found[instruction], strings.Join(strings.Fields(arguments), " "))
		}
	}
	return found
}

func TestAnImageIsTheBinaryAndNothingElse(t *testing.T) {
	for name, image := range images {
		t.Run(name, func(t *testing.T) {
			got := instructions(t, image.dockerfile)
			for instruction, want := range map[string][]string{
				"FROM":       {"--platform=$BUILDPLATFORM ${GO_IMAGE} AS build", "${BASE_IMAGE}"},
				"ENTRYPOINT": {`["/` + name + `"]`},
				"USER":       {image.user},
			} {
				if diff := cmp.Diff(want, got[instruction]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", instruction, diff)
				}
			}
			if !slices.Contains(got["ARG"], "BASE_IMAGE=scratch") {
				t.Errorf("arguments %q, want an empty base image among them", got["ARG"])
			}
			if last := got["COPY"][len(got["COPY"])-1]; last != "--from=build /src/bin/"+name+" /"+name {
				t.Errorf("the last COPY is %q, want the binary at the entry point's path", last)
			}
		})
	}
}

func TestTheImagesUseTheModulesGoVersion(t *testing.T) {
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(module), "\ngo ")
	version, _, _ := strings.Cut(rest, "\n")
	minor := strings.Join(strings.Split(version, ".")[:2], ".")
	for _, image := range images {
		arguments := instructions(t, image.dockerfile)["ARG"]
		if !slices.ContainsFunc(arguments, func(arg string) bool { return strings.HasPrefix(arg, "GO_IMAGE=golang:"+minor+".") }) {
			t.Errorf("%s: arguments %q, want Go %s as in go.mod", image.dockerfile, arguments, minor)
		}
	}
}

// The Dockerfile's command runs on the files that the Dockerfile copies, without those that .dockerignore excludes.
func TestADockerfileBuildsAStaticBinaryThatTakesTheManifestsArguments(t *testing.T) {
	for name, image := range images {
		t.Run(name, func(t *testing.T) {
			source := t.TempDir()
			recipe := instructions(t, image.dockerfile)
			for _, arguments := range recipe["COPY"][:len(recipe["COPY"])-1] {
				words := strings.Fields(arguments)
				for _, copied := range words[:len(words)-1] {
					copyWithoutIgnored(t, copied, source)
				}
			}
			build(t, recipe["RUN"], source, "v9.8.7")
			program := filepath.Join(source, "bin", name)
			expectStatic(t, program)
			expectBuiltWith(t, program, "CGO_ENABLED=0", "-trimpath=true", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
			if got := output(t, program, "version"); !strings.Contains(got, "v9.8.7") {
				t.Errorf("it reports version %q, want v9.8.7", got)
			}
			for where, pod := range image.pods(t) {
				expectAccepted(t, program, where, pod.Containers[0].Args)
			}
		})
	}
}

// expectAccepted makes a program parse its arguments: with --help a command does nothing else, and an unknown
// argument is an error.
func expectAccepted(t *testing.T, program, file string, arguments []string) {
	t.Helper()
	output(t, program, append(slices.Clone(arguments), "--help")...)
	unknown := append(slices.Clone(arguments), "--unknown", "--help")
	if err := exec.CommandContext(t.Context(), program, unknown...).Run(); err == nil {
		t.Errorf("%s: an unknown flag is accepted, so --help does not check the arguments", file)
	}
}

// expectStatic checks that a program needs nothing that an image without files lacks. It also checks that -s and -w
// have kept the table from which Go creates stack traces and profiles.
func expectStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
		t.Error("the binary is not static: it needs a dynamic linker, which the image does not have")
	}
	if section := file.Section(".gopclntab"); section == nil || section.Size == 0 {
		t.Error("the binary has no table of functions and lines, so its stack traces would have no symbols")
	}
}

// expectBuiltWith checks the build settings that Go records in a program.
func expectBuiltWith(t *testing.T, program string, wants ...string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var settings []string
	for _, setting := range info.Settings {
		settings = append(settings, setting.Key+"="+setting.Value)
	}
	for _, want := range wants {
		if !slices.Contains(settings, want) {
			t.Errorf("the binary was built with %q, want %s", settings, want)
		}
	}
}

// build runs a Dockerfile's RUN instruction in a folder.
func build(t *testing.T, runs []string, source, version string) {
	t.Helper()
	if len(runs) != 1 {
		t.Fatalf("commands %q, want one", runs)
	}
	var words []string
	for word := range strings.FieldsSeq(runs[0]) {
		if !strings.HasPrefix(word, "--mount=type=cache,") { // go finds this machine's caches itself
			words = append(words, word)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.Join(words, " "))
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "VERSION="+version)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, output)
	}
}

// copyWithoutIgnored copies a file or folder of the repository as a build's context contains it. .dockerignore lists
// the existing files, and then, with **/ before them, those that are not needed.
func copyWithoutIgnored(t *testing.T, name, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	ignored := strings.Split(strings.TrimSpace(string(text)), "\n")
	if !slices.Contains(ignored, "*") || !slices.Contains(ignored, "!"+name) {
		t.Fatalf(".dockerignore excludes %s", name)
	}
	err = filepath.WalkDir(filepath.Join(root, name), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch isExcluded := slices.ContainsFunc(ignored, func(line string) bool { return matchesAnywhere(line, entry.Name()) }); {
		case isExcluded && entry.IsDir():
			return filepath.SkipDir
		case isExcluded:
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func matchesAnywhere(line, name string) bool {
	pattern, anywhere := strings.CutPrefix(line, "**/")
	matches, err := filepath.Match(pattern, name)
	return anywhere && matches && err == nil
}

// output returns a program's standard output and standard error.
func output(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	got, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(arguments, " "), err, got)
	}
	return string(got)
}

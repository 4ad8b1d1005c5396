// Prints the YAML documents of standard input as one JSON list, or, with a folder as its argument, what
// `kustomize build` makes of it: the tests read manifests as JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func read() ([]byte, error) {
	if len(os.Args) == 1 {
		return io.ReadAll(os.Stdin)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), os.Args[1])
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}

func documents(text []byte) ([]any, error) {
	found := []any{}
	var one bytes.Buffer
	take := func() error {
		var value any
		// Strictly: a key that stands twice is a mistake that a YAML reader would hide.
		if err := yaml.UnmarshalStrict(one.Bytes(), &value); err != nil {
			return err
		}
		if value != nil {
			found = append(found, value)
		}
		one.Reset()
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if line := lines.Text(); line == "---" || strings.HasPrefix(line, "--- ") {
			if err := take(); err != nil {
				return nil, err
			}
			continue
		}
		one.WriteString(lines.Text() + "\n")
	}
	err := take()
	return found, err
}

func main() {
	text, err := read()
	var found []any
	if err == nil {
		found, err = documents(text)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "yamljson:", err)
		os.Exit(1)
	}
}

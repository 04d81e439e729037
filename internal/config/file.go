package config

import (
	"crypto/sha256"
	"fmt"
	"os"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// readFile decodes a configuration file. It decodes strictly first. If only that
// fails, it decodes leniently and returns a warning for each error, because
// kube-proxy accepts such files and a node must not lose its Services because of a
// misspelt field.
func readFile(path string) (w wire, warnings []string, digest [sha256.Size]byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return w, nil, digest, fmt.Errorf("read configuration: %w", err)
	}
	if w, warnings, err = decode(data); err != nil {
		return w, nil, digest, fmt.Errorf("read configuration %s: %w", path, err)
	}
	for i := range warnings {
		warnings[i] = fmt.Sprintf("configuration %s: %s (ignored)", path, warnings[i])
	}
	return w, warnings, sha256.Sum256(data), nil
}

func decode(data []byte) (wire, []string, error) {
	var w wire
	var warnings []string
	js, err := yaml.YAMLToJSONStrict(data)
	if err != nil { // a duplicate key: the last value is used, as in kube-proxy
		warnings = append(warnings, err.Error())
		if js, err = yaml.YAMLToJSON(data); err != nil {
			return w, nil, err
		}
	}
	strict, err := kjson.UnmarshalStrict(js, &w)
	if err != nil {
		return w, nil, err
	}
	for _, e := range strict {
		warnings = append(warnings, e.Error())
	}
	if w.APIVersion != APIVersion || w.Kind != Kind {
		return w, nil, fmt.Errorf("is %q %q, must be apiVersion %s, kind %s", w.APIVersion, w.Kind, APIVersion, Kind)
	}
	return w, warnings, nil
}

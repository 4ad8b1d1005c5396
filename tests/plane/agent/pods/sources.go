package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Sources is where a pod's files and variables come from: a cluster, or a file of manifests.
type Sources interface {
	Secret(namespace, name string) (map[string][]byte, error)
	ConfigMap(namespace, name string) (map[string][]byte, error)
	Token(pod *corev1.Pod, audience string, seconds int64) (string, error)
}

// Host is the node as its pods see it.
type Host struct {
	Folder     string            // of files, logs and roots
	Images     map[string]string // name of an image, without registry and tag → its root file system
	Claims     map[string]string // name of a PersistentVolumeClaim → a folder
	Sources    Sources
	Nameserver string
	Kubernetes []string // the variables by which every container finds the API server
}

func (h *Host) image(reference string) (string, error) {
	name := reference[strings.LastIndex(reference, "/")+1:]
	name = strings.FieldsFunc(name, func(r rune) bool { return r == ':' || r == '@' })[0]
	if root, found := h.Images[name]; found {
		return root, nil
	}
	return "", fmt.Errorf("no root file system stands for the image %s", reference)
}

// writeFiles lays entries out as the kubelet does: a folder of a version, and links that can be turned to the next.
func writeFiles(folder string, files map[string][]byte, modes map[string]os.FileMode, group int) error {
	if err := os.MkdirAll(filepath.Join(folder, "..1"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("..1", filepath.Join(folder, "..data")); err != nil && !os.IsExist(err) {
		return err
	}
	for name, data := range files {
		path := filepath.Join(folder, "..1", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := modes[name]
		if group >= 0 {
			mode |= 0o440
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		if group >= 0 {
			if err := os.Lchown(path, 0, group); err != nil {
				return err
			}
		}
		first := strings.SplitN(name, "/", 2)[0]
		link := filepath.Join(folder, first)
		if err := os.Symlink(filepath.Join("..data", first), link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// pick takes the items out of the data of a Secret or ConfigMap, or all of it.
func pick(into map[string][]byte, modes map[string]os.FileMode, data map[string][]byte, items []corev1.KeyToPath,
	mode *int32, optional bool) error {
	if items == nil {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found && !optional {
			return fmt.Errorf("there is no key %s", item.Key)
		}
		into[item.Path] = value
		modes[item.Path] = modeOf(item.Mode, mode)
	}
	return nil
}

// modeOf is the file's own mode, or else its volume's.
func modeOf(own, volumes *int32) os.FileMode {
	for _, mode := range []*int32{own, volumes} {
		if mode != nil {
			return os.FileMode(*mode)
		}
	}
	return 0o644
}

func truth(b *bool) bool { return b != nil && *b }

func (p *Pod) projected(source *corev1.ProjectedVolumeSource, files map[string][]byte, modes map[string]os.FileMode) error {
	for _, s := range source.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			seconds := int64(3600)
			if s.ServiceAccountToken.ExpirationSeconds != nil {
				seconds = *s.ServiceAccountToken.ExpirationSeconds
			}
			token, err := p.host.Sources.Token(p.given, s.ServiceAccountToken.Audience, seconds)
			if err != nil {
				return err
			}
			files[s.ServiceAccountToken.Path] = []byte(token)
			modes[s.ServiceAccountToken.Path] = modeOf(nil, source.DefaultMode)
		case s.ConfigMap != nil:
			data, err := p.host.Sources.ConfigMap(p.given.Namespace, s.ConfigMap.Name)
			if err != nil && !truth(s.ConfigMap.Optional) {
				return err
			}
			if err := pick(files, modes, data, s.ConfigMap.Items, source.DefaultMode, truth(s.ConfigMap.Optional)); err != nil {
				return err
			}
		case s.Secret != nil:
			data, err := p.host.Sources.Secret(p.given.Namespace, s.Secret.Name)
			if err != nil && !truth(s.Secret.Optional) {
				return err
			}
			if err := pick(files, modes, data, s.Secret.Items, source.DefaultMode, truth(s.Secret.Optional)); err != nil {
				return err
			}
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				value, err := p.downward(item.FieldRef, item.ResourceFieldRef, nil)
				if err != nil {
					return err
				}
				files[item.Path], modes[item.Path] = []byte(value), modeOf(item.Mode, source.DefaultMode)
			}
		default:
			return fmt.Errorf("a projection that this node does not know: %v", s)
		}
	}
	return nil
}

// makeVolume returns the path on the machine of a pod's volume.
func (p *Pod) makeVolume(v *corev1.Volume) (string, error) {
	folder := filepath.Join(p.folder, "volumes", v.Name)
	files, modes := map[string][]byte{}, map[string]os.FileMode{}
	var err error
	var data map[string][]byte
	switch {
	case v.EmptyDir != nil:
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return "", err
		}
		return folder, os.Chmod(folder, 0o777) // the mask of the agent is not the pod's
	case v.HostPath != nil:
		return v.HostPath.Path, nil
	case v.PersistentVolumeClaim != nil:
		path, found := p.host.Claims[v.PersistentVolumeClaim.ClaimName]
		if !found {
			return "", fmt.Errorf("no folder stands for the claim %s", v.PersistentVolumeClaim.ClaimName)
		}
		return path, nil
	case v.Secret != nil:
		if data, err = p.host.Sources.Secret(p.given.Namespace, v.Secret.SecretName); err == nil || truth(v.Secret.Optional) {
			err = pick(files, modes, data, v.Secret.Items, v.Secret.DefaultMode, truth(v.Secret.Optional))
		}
	case v.ConfigMap != nil:
		if data, err = p.host.Sources.ConfigMap(p.given.Namespace, v.ConfigMap.Name); err == nil || truth(v.ConfigMap.Optional) {
			err = pick(files, modes, data, v.ConfigMap.Items, v.ConfigMap.DefaultMode, truth(v.ConfigMap.Optional))
		}
	case v.Projected != nil:
		err = p.projected(v.Projected, files, modes)
	case v.DownwardAPI != nil:
		for _, item := range v.DownwardAPI.Items {
			var value string
			if value, err = p.downward(item.FieldRef, item.ResourceFieldRef, nil); err != nil {
				break
			}
			files[item.Path], modes[item.Path] = []byte(value), modeOf(item.Mode, v.DownwardAPI.DefaultMode)
		}
	default:
		err = fmt.Errorf("a kind of volume that this node does not have")
	}
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", v.Name, err)
	}
	return folder, writeFiles(folder, files, modes, p.fileGroup())
}

func (p *Pod) fileGroup() int {
	if s := p.given.Spec.SecurityContext; s != nil && s.FSGroup != nil && canSwitchUser() {
		return int(*s.FSGroup)
	}
	return -1
}

// canSwitchUser is false in a user namespace that maps one user only.
func canSwitchUser() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && len(fields) == 3 && fields[2] != "1" && os.Geteuid() == 0
}

var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)

func lines(values map[string]string) string {
	var all []string
	for key, value := range values {
		all = append(all, key+"="+strconv.Quote(value))
	}
	sort.Strings(all)
	return strings.Join(all, "\n")
}

// downward is a value of the downward API.
func (p *Pod) downward(field *corev1.ObjectFieldSelector, amount *corev1.ResourceFieldSelector, of *corev1.Container) (string, error) {
	if amount != nil {
		return p.amount(amount, of)
	}
	pod := p.given
	values := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"metadata.labels": lines(pod.Labels), "metadata.annotations": lines(pod.Annotations),
		"spec.nodeName": pod.Spec.NodeName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.hostIP": NodeAddress, "status.hostIPs": NodeAddress, "status.podIP": p.address(), "status.podIPs": p.address(),
	}
	if value, found := values[field.FieldPath]; found {
		return value, nil
	}
	if match := subscript.FindStringSubmatch(field.FieldPath); match != nil {
		if match[1] == "labels" {
			return pod.Labels[match[2]], nil
		}
		return pod.Annotations[match[2]], nil
	}
	return "", fmt.Errorf("the field %s is none of the downward API", field.FieldPath)
}

func (p *Pod) amount(selector *corev1.ResourceFieldSelector, of *corev1.Container) (string, error) {
	for i := range p.given.Spec.Containers {
		if of == nil && p.given.Spec.Containers[i].Name == selector.ContainerName {
			of = &p.given.Spec.Containers[i]
		}
	}
	if of == nil {
		return "", fmt.Errorf("no container is called %s", selector.ContainerName)
	}
	kind, name, _ := strings.Cut(selector.Resource, ".")
	amounts := map[string]corev1.ResourceList{"limits": of.Resources.Limits, "requests": of.Resources.Requests}[kind]
	value, found := amounts[corev1.ResourceName(name)]
	if !found {
		return "0", nil
	}
	divisor := selector.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return strconv.FormatInt((value.MilliValue()+divisor.MilliValue()-1)/divisor.MilliValue(), 10), nil
	}
	return strconv.FormatInt((value.Value()+divisor.Value()-1)/divisor.Value(), 10), nil
}

var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expand puts variables in place of $(NAME); $$ is a dollar sign, and an unknown name stays as it is.
func expand(text string, known map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return "$"
		}
		if value, found := known[match[2:len(match)-1]]; found {
			return value
		}
		return match
	})
}

// environment is a container's variables, by name.
func (p *Pod) environment(c *corev1.Container) (map[string]string, error) {
	known := map[string]string{"PATH": "/usr/local/bin:/usr/bin", "HOSTNAME": p.hostname()}
	for _, pair := range p.host.Kubernetes {
		name, value, _ := strings.Cut(pair, "=")
		known[name] = value
	}
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		var err error
		var optional bool
		if from.SecretRef != nil {
			data, err = p.host.Sources.Secret(p.given.Namespace, from.SecretRef.Name)
			optional = truth(from.SecretRef.Optional)
		} else if from.ConfigMapRef != nil {
			data, err = p.host.Sources.ConfigMap(p.given.Namespace, from.ConfigMapRef.Name)
			optional = truth(from.ConfigMapRef.Optional)
		}
		if err != nil && !optional {
			return nil, err
		}
		for key, value := range data {
			known[from.Prefix+key] = string(value)
		}
	}
	for _, variable := range c.Env {
		value, found, err := p.variable(&variable, c, known)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
		}
		if found {
			known[variable.Name] = value
		}
	}
	return known, nil
}

func (p *Pod) variable(v *corev1.EnvVar, c *corev1.Container, known map[string]string) (string, bool, error) {
	if v.ValueFrom == nil {
		return expand(v.Value, known), true, nil
	}
	from := v.ValueFrom
	if from.FieldRef != nil || from.ResourceFieldRef != nil {
		value, err := p.downward(from.FieldRef, from.ResourceFieldRef, c)
		return value, true, err
	}
	var data map[string][]byte
	var err error
	var key string
	var optional bool
	if from.SecretKeyRef != nil {
		data, err = p.host.Sources.Secret(p.given.Namespace, from.SecretKeyRef.Name)
		key, optional = from.SecretKeyRef.Key, truth(from.SecretKeyRef.Optional)
	} else if from.ConfigMapKeyRef != nil {
		data, err = p.host.Sources.ConfigMap(p.given.Namespace, from.ConfigMapKeyRef.Name)
		key, optional = from.ConfigMapKeyRef.Key, truth(from.ConfigMapKeyRef.Optional)
	} else {
		return "", false, fmt.Errorf("a source that this node does not know")
	}
	value, found := data[key]
	if !found && !optional && err == nil {
		err = fmt.Errorf("there is no key %s", key)
	}
	if optional {
		err = nil
	}
	return string(value), found, err
}

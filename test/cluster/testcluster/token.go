package testcluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const issuer = "https://kubernetes.default.svc"

const accountNamespace, accountName = "kube-system", "fairlead"

// createAccount creates the service account of the agent: with the objects of Deploy, or with the rights that every
// cluster grants to kube-proxy.
func (c *Cluster) createAccount(ctx context.Context) error {
	create := c.bindToNodeProxier
	if c.cfg.Deploy != "" {
		create = func(ctx context.Context) error { return c.Create(ctx, c.cfg.Deploy) }
	}
	if err := create(ctx); err != nil {
		return err
	}
	made, err := c.Admin.CoreV1().ServiceAccounts(accountNamespace).Get(ctx, accountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("service account %s/%s: %w", accountNamespace, accountName, err)
	}
	c.accountUID = string(made.UID)
	return nil
}

func (c *Cluster) bindToNodeProxier(ctx context.Context) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accountNamespace, Name: accountName}}
	// The namespace kube-system appears a moment after the server reports that it is ready.
	err := poll(ctx, func() error {
		_, err := c.Admin.CoreV1().ServiceAccounts(accountNamespace).Create(ctx, sa, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create service account %s/%s: %w", accountNamespace, accountName, err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fairlead"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: accountName}}}
	if _, err := c.Admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create cluster role binding fairlead: %w", err)
	}
	return nil
}

// leeway is what the API server adds to the expiry of a token (the default of go-jose).
const leeway = time.Minute

// WriteToken replaces the file with a token of the agent's service account that the server accepts for the given time, the
// way a kubelet does: a new file, then a rename. The TokenRequest API rejects less than ten minutes, so the token is
// signed here.
func (c *Cluster) WriteToken(path string, valid time.Duration) error {
	now := time.Now()
	claims := map[string]any{"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + accountNamespace + ":" + accountName,
		"iat": now.Add(-time.Hour).Unix(), "nbf": now.Add(-time.Hour).Unix(), "exp": now.Add(valid - leeway).Unix(),
		"kubernetes.io": map[string]any{"namespace": accountNamespace,
			"serviceaccount": map[string]string{"name": accountName, "uid": c.accountUID}}}
	token, err := c.signJWT(claims)
	if err != nil {
		return fmt.Errorf("sign token: %w", err)
	}
	tmp := filepath.Join(filepath.Dir(path), ".token.new")
	if err := os.WriteFile(tmp, []byte(token), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func (c *Cluster) signJWT(claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"ES256"}`)) + "." + enc.EncodeToString(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, c.accountKey, sum[:])
	if err != nil {
		return "", err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return signed + "." + enc.EncodeToString(sig), nil
}

// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Kubernetes are the gadget pods of a cluster. The daemon listens inside its pod
// only, so it is reached through the API server, as kubectl port-forward does:
// that needs the rights to list and watch pods and to create pods/portforward in
// the namespace, and no more.
type Kubernetes struct {
	Config    *rest.Config
	Namespace string // default gadget
	Selector  string // default k8s-app=gadget, as Inspektor Gadget labels its pods
	Port      uint16 // default 8080
}

// pause collects changes: a DaemonSet that is updated changes many pods.
const pause = 200 * time.Millisecond

// Watch implements Source.
func (k Kubernetes) Watch(ctx context.Context, changed func([]Target)) error {
	k.Namespace = cmp.Or(k.Namespace, "gadget")
	k.Selector = cmp.Or(k.Selector, "k8s-app=gadget")
	k.Port = cmp.Or(k.Port, 8080)
	client, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		return fmt.Errorf("watch gadget pods: %w", err)
	}
	pods := client.CoreV1().Pods(k.Namespace)
	// Reported once and at once; the informer would only retry.
	if _, err := pods.List(ctx, metav1.ListOptions{LabelSelector: k.Selector, Limit: 1}); err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", k.Namespace, err)
	}

	wake := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = k.Selector
				return pods.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = k.Selector
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, pod any) { notify(pod) },
		},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	defer func() { <-ended }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	for {
		changed(k.targets(store.List()))
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// targets are the pods that run.
func (k Kubernetes) targets(pods []any) []Target {
	var all []Target
	for _, object := range pods {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
			continue
		}
		name := pod.Name
		var started time.Time
		if pod.Status.StartTime != nil {
			started = pod.Status.StartTime.Time
		}
		all = append(all, Target{
			Started: started,
			Key:     string(pod.UID), Node: pod.Spec.NodeName, Credentials: insecure.NewCredentials(),
			Dial: func(ctx context.Context) (net.Conn, error) {
				return forward(ctx, k.Config, k.Namespace, name, k.Port)
			},
		})
	}
	slices.SortFunc(all, func(a, b Target) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Key, b.Key)) })
	return all
}

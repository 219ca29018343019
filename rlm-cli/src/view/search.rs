//! The search for rollouts by words of their texts.

use super::rollouts::{Rollout, Step};
use crate::text::Text;

impl Rollout {
    /// Reports whether the rollout's texts have all these words, which are in small letters.
    pub(super) fn has_words(&self, words: &[String]) -> bool {
        let mut missing: Vec<&str> = words.iter().map(String::as_str).collect();
        self.see_texts(&mut |text| {
            if !missing.is_empty() {
                let text = text.to_lowercase();
                missing.retain(|word| !text.contains(word));
            }
        });
        missing.is_empty()
    }

    /// Gives each of the rollout's texts to `see`.
    fn see_texts(&self, see: &mut dyn FnMut(&str)) {
        let mut see_all = |texts: &[Option<&Text>]| {
            for text in texts.iter().flatten() {
                see(&text.head);
                see(&text.tail);
            }
        };
        let (start, end) = (self.start.as_ref(), self.end.as_ref());
        see_all(&[start.map(|start| &start.question), self.system.as_ref()]);
        see_all(&[end.and_then(|end| end.answer.as_ref()), end.and_then(|end| end.error.as_ref())]);
        for step in self.steps() {
            match step {
                Step::Model(call) => see_all(&[call.error.as_ref()]),
                Step::Message(_, text) | Step::Retry(text) => see_all(&[Some(text)]),
                Step::Thought(thought) => see_all(&[Some(&thought.text)]),
                Step::Call(call) => {
                    see_all(&[call.input.as_ref(), call.message.as_ref(), call.error.as_ref()])
                }
                Step::Image(..) | Step::Batch(_) => {}
            }
        }
        for output in self.calls().filter_map(|call| call.output.as_ref()) {
            let answer = output.answer.as_ref().map(|(answer, _)| answer);
            see_all(&[Some(&output.stdout), Some(&output.stderr), output.result.as_ref()]);
            see_all(&[output.hint.as_ref(), answer]);
        }
        for prompt in self.batches().flat_map(|batch| batch.prompts.values()) {
            let thought = prompt.thought.as_ref().map(|thought| &thought.text);
            see_all(&[Some(&prompt.prompt), thought, prompt.reply.as_ref(), prompt.error.as_ref()]);
        }
        see(&self.id);
    }
}

/** Answers in OpenAI's form. */
import { randomUUID } from "node:crypto";

/** How many tokens a request has taken. */
export interface Usage {
  prompt: number;
  completion: number;
}

/** A piece of one of the texts, or its end. */
export interface AnswerPiece {
  readonly index: number;
  readonly text: string;
  readonly finish?: "stop" | "length" | undefined;
}

const usageJson = ({ prompt, completion }: Usage) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

/** The form of the answers of one endpoint to one request. */
export class AnswerForm {
  private readonly id: string;
  private readonly created = Math.floor(Date.now() / 1000);

  constructor(
    private readonly isChat: boolean,
    private readonly model: string,
    private readonly includeUsage: boolean,
  ) {
    this.id = `${isChat ? "chatcmpl" : "cmpl"}-${randomUUID()}`;
  }

  /** The answer to a request without a stream. */
  whole(texts: readonly { readonly text: string; readonly finish: string | undefined }[], usage: Usage) {
    const choices = texts.map(({ text, finish = null }, index) => ({
      index,
      ...(this.isChat ? { message: { role: "assistant", content: text } } : { text }),
      logprobs: null,
      finish_reason: finish,
    }));
    return { ...this.head(""), choices, usage: usageJson(usage) };
  }

  /** The first parts of a stream of texts. */
  first(count: number): object[] {
    if (!this.isChat) return [];
    return Array.from({ length: count }, (_, index) =>
      this.chunk({ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }),
    );
  }

  /** The parts of a stream that a piece of a text becomes. */
  parts({ index, text, finish }: AnswerPiece): object[] {
    const part = (content: string, reason: string | null) =>
      this.chunk({
        index,
        ...(this.isChat ? { delta: reason === null ? { content } : {} } : { text: content }),
        logprobs: null,
        finish_reason: reason,
      });
    return [...(text === "" ? [] : [part(text, null)]), ...(finish ? [part("", finish)] : [])];
  }

  /** The last parts of a stream. */
  last(usage: Usage): object[] {
    return this.includeUsage ? [{ ...this.head(".chunk"), choices: [], usage: usageJson(usage) }] : [];
  }

  private head(suffix: string) {
    const { id, created, model } = this;
    return { id, object: this.isChat ? `chat.completion${suffix}` : "text_completion", created, model };
  }

  private chunk(choice: object): object {
    return { ...this.head(".chunk"), choices: [choice], ...(this.includeUsage && { usage: null }) };
  }
}
